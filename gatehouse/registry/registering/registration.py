"""The ledger records that follow from a verdict: a pure function of the state, called until nothing is left to do."""

from datetime import datetime

from gatehouse.registry.approving.approval import standing
from gatehouse.registry.state import CHAMPION, STAGING, Record, StaleVerdictError, State, Verdict


def next_registration(state: State, verdict: Verdict, lineage: tuple[str, ...]) -> Record | None:
    """The next record that follows from `verdict`, or None if all is done.

    A refusal is recorded once. A candidate that passes becomes a version; a model has at most one version, however
    often it is judged. The version then gets staging and, if the policy's approval is automatic, champion.

    Args:
        state: The ledger's present state.
        verdict: The gate's verdict on the candidate.
        lineage: Identities of all artifacts that the candidate was made from.

    Raises:
        StaleVerdictError: if the verdict compares with another champion than the present one.
    """
    subject = verdict.subject
    last = state.verdict_on(subject)
    if last is None or _differs(state, *last, verdict):
        _require_champion(state.expected_champion(subject), verdict)
        if not verdict.admits:
            return Record(kind="refused", verdict=verdict)
        known = state.version_of(subject.model)
        number = known.version if known else len(state.versions) + 1
        return Record(kind="registered", version=number, verdict=verdict, lineage=lineage)
    number, standing = last
    version = state.version_of(subject.model)
    if version is None or state.settled(number, standing):
        return None
    _require_champion(state.champion_other_than(subject.model), standing)
    if version.staged_at < number and state.staging != version.version:
        return Record(kind="promoted", version=version.version, alias=STAGING)
    if standing.approval == "automatic":
        return Record(kind="promoted", version=version.version, alias=CHAMPION)
    return None


def _differs(state: State, number: int, last: Verdict, verdict: Verdict) -> bool:
    """Whether a verdict differs from the subject's last one; if settled, another evaluation alone does not count."""
    said, before = (
        (each.verdict, each.champion, each.exempted, each.reasons, each.kept_out) for each in (verdict, last)
    )
    return said != before or (verdict.evaluation != last.evaluation and not state.settled(number, last))


def _require_champion(present: str, verdict: Verdict) -> None:
    if present != verdict.champion:
        raise StaleVerdictError(
            f"{verdict.subject.model} was judged against {verdict.champion or 'no champion'} in {verdict.evaluation}, "
            f"but it would replace {present or 'no champion'} now: the champion has changed meanwhile. Run the "
            "pipeline again; only resolve, evaluate and register run, the other stages are memo hits."
        )


def decision_on(state: State, verdict: Verdict, now: datetime) -> str:
    """The decision about a judged candidate, in words.

    `approved`, `awaiting approval`, `awaiting promotion` (approved by a person and not promoted yet), `rejected`,
    `refused`, `inconclusive`, `rolled back` or `archived`.
    """
    version = state.version_of(verdict.subject.model)
    if not verdict.admits or version is None:
        return "refused" if verdict.verdict == "pass" else verdict.verdict
    last = state.verdict_on(verdict.subject)
    return version.ended or ("approved" if last and state.settled(*last) else standing(state, verdict, now))
