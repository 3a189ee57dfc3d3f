"""Holds every judged candidate of a name against another policy, from the evaluations in the store."""

from gatehouse.components.artifacts.stage import StageModel
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.evaluation.recorded import NOT_KNOWN, Rejudged, rejudged
from gatehouse.components.evaluation.spec import GatePolicy
from gatehouse.components.registry.naming import Named
from gatehouse.errors import MissingArtifactError


class Tried(StageModel):
    """What was said of a candidate, and what a policy says of the same evaluation.

    Attributes:
        version: The version that the candidate is; 0 where it was never registered.
        model: The candidate.
        evaluation: What was measured on it.
        then: The verdict that the ledger holds, with the exemptions that were applied.
        now: `pass`, `refused`, `inconclusive`, or `not known` where a rule was not measured then and none refuses.
        broken: Rules of the policy that do not hold and refuse, in words.
        warnings: Those that do not hold and warn.
        not_measured: Rules that need what the evaluation does not hold.
    """

    version: int
    model: str
    evaluation: str
    then: str
    now: str
    broken: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    not_measured: tuple[str, ...] = ()


def tried(store: ArtifactStore, policy: GatePolicy, candidates: Named) -> tuple[Tried, ...]:
    """What a policy would have said of each judged candidate of a name, or of one version, in the ledger's order.

    An evaluation stands once, with the last verdict that the ledger holds of it.

    Raises:
        ConfigurationError: if the policy does not fit the task of an evaluation.
    """
    state = candidates.ledger.state()
    last = {verdict.evaluation: verdict for _, verdict in state.verdicts}
    found = []
    for evaluation, verdict in last.items():
        version = state.version_of(verdict.subject.model)
        number = version.version if version else 0
        if candidates.number not in (0, number):
            continue
        try:
            said = rejudged(store, evaluation, policy)
        except MissingArtifactError as error:
            said = Rejudged(NOT_KNOWN, (), (), (f"anything: {error}",))
        found.append(
            Tried(
                version=number,
                model=verdict.subject.model,
                evaluation=evaluation,
                then=verdict.told,
                now=said.verdict,
                broken=said.broken,
                warnings=said.warnings,
                not_measured=said.not_measured,
            )
        )
    return tuple(found)
