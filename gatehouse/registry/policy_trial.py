"""Judges every recorded candidate of a name by another policy, from the evaluations in the store."""

from gatehouse.errors import MissingArtifactError
from gatehouse.evaluation.recorded import NOT_KNOWN, Retried, verdict_by
from gatehouse.evaluation.spec import GatePolicy
from gatehouse.registry.naming import VersionName
from gatehouse.store.stage import StageModel
from gatehouse.store.store import ArtifactStore


class PolicyTrial(StageModel):
    """The recorded verdict on a candidate, and a policy's verdict on the same evaluation.

    `version` is 0 if the candidate was never registered. `now` is `pass`, `refused`, `inconclusive`, or `not known` if
    no rule refuses but one was not measured then. `broken` and `warnings` are the policy's broken rules that refuse and
    warn, `not_measured` those whose values are not in the evaluation.
    """

    version: int
    model: str
    evaluation: str
    then: str
    now: str
    broken: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    not_measured: tuple[str, ...] = ()


def tried(store: ArtifactStore, policy: GatePolicy, candidates: VersionName) -> tuple[PolicyTrial, ...]:
    """What a policy would have decided about each judged candidate of a name, or of one version, in the ledger's order.

    Each evaluation is listed once, with its last verdict in the ledger. Raises ConfigurationError if the policy does
    not fit the task of an evaluation.
    """
    state = candidates.ledger.state()
    trials = []
    for evaluation, verdict in {verdict.evaluation: verdict for _, verdict in state.verdicts}.items():
        version = state.version_of(verdict.subject.model)
        number = version.version if version else 0
        if candidates.number not in (0, number):
            continue
        try:
            again = verdict_by(store, evaluation, policy)
        except MissingArtifactError as error:
            again = Retried(NOT_KNOWN, (), (), (f"anything: {error}",))
        trials.append(
            PolicyTrial(
                version=number,
                model=verdict.subject.model,
                evaluation=evaluation,
                then=verdict.summary,
                now=again.verdict,
                broken=again.broken,
                warnings=again.warnings,
                not_measured=again.not_measured,
            )
        )
    return tuple(trials)
