"""The stage that records the gate's verdict on a candidate in the ledger."""

from gatehouse.evaluation.spec import GatePolicy
from gatehouse.registry.approving.approval import now
from gatehouse.registry.explaining.answers import require_answers
from gatehouse.registry.ledger import WRITES_LEDGER, Ledger
from gatehouse.registry.projection import project
from gatehouse.registry.registering.evaluated import verdict_on
from gatehouse.registry.registering.registration import decision_on, next_registration
from gatehouse.registry.state import Verdict
from gatehouse.store.identity import operational
from gatehouse.store.stage import StageModel, stage
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.provenance import lineage_of


class RegisterRequest(StageModel):
    """A candidate and the evaluation that judged it. `by` is who submits it; empty for the user of the process."""

    model_name: str
    model: str
    evaluation: str
    policy: GatePolicy
    by: str = operational("")


class RegisterResult(StageModel):
    """The decision about the candidate.

    `decision` is `approved`, `awaiting approval`, `awaiting promotion`, `rejected`, `refused`, `inconclusive`, `rolled
    back` or `archived`; `verdict`, for reports, is `pass` for `approved`, else the decision. `version` is 0 if there is
    none; `aliases` are those that the version holds now; `alias` is the highest of them, or empty. `reasons` say why
    the gate refused, or which command to run next; `warnings` list the exemptions that were applied. `earlier_uses`
    counts the candidates of this name that were judged on the same test set before; `summary` says it in words.
    """

    decision: str
    verdict: str
    version: int
    aliases: tuple[str, ...]
    alias: str
    reasons: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    earlier_uses: int = 0
    summary: str = ""


@stage("register", title="Register behind the gate", effects=WRITES_LEDGER)
def register(request: RegisterRequest, store: ArtifactStore) -> RegisterResult:
    """Record the gate's verdict in the ledger, and update MLflow if the ledger changed.

    Registering again without a change writes nothing.

    Raises:
        WrongEvaluationError: if the evaluation judges another model or policy, or compares the model with itself.
        StaleVerdictError: if the champion changed after the candidate was judged.
        IncompleteLineageError: if the candidate's origin is not fully known: what, how, where and by whom.
        CorruptArtifactError: if the candidate, or an artifact it was made from, does not verify.
    """
    ledger = Ledger(store, request.model_name)
    before = ledger.state()
    verdict = verdict_on(store, request.model, request.evaluation, request.policy, before, now())
    lineage: tuple[str, ...] = ()
    if next_registration(before, verdict, lineage) is not None:
        store.verify(request.model)
        require_answers(store, request.model)
        lineage = lineage_of(store, request.model)
    state = ledger.extend(lambda current: next_registration(current, verdict, lineage), request.by)
    project(store, request.model_name, state)
    version = state.version_of(verdict.subject.model)
    number = version.version if version else 0
    aliases = state.aliases_of(number)
    decision = decision_on(state, verdict, now())
    entered = state.verdict_on(verdict.subject)
    uses = state.uses_before(entered[0], verdict.subject) if entered else 0
    return RegisterResult(
        decision=decision,
        verdict="pass" if decision == "approved" else decision,
        version=number,
        aliases=aliases,
        alias=aliases[-1] if aliases else "",
        reasons=verdict.reasons or _next_step(decision, f"{request.model_name}:{number}", verdict),
        warnings=tuple(map(str, verdict.exempted)),
        earlier_uses=uses,
        summary=f"{uses:,} other candidates of {request.model_name} were judged on this test set before",
    )


def _next_step(decision: str, name: str, verdict: Verdict) -> tuple[str, ...]:
    """The next action of a person, for a candidate that waits for one."""
    if decision == "awaiting approval":
        days = "a day" if verdict.approval_days == 1 else f"{verdict.approval_days} days"
        eyes = "; not by who trained or submitted it" if verdict.four_eyes else ""
        return (
            f'gatehouse models approve {name} --reason "…" (or reject): holds for {days}{eyes}',
            f"then gatehouse models promote {name}, or the promotion pipeline",
        )
    return (f"gatehouse models promote {name}, or the promotion pipeline",) if decision == "awaiting promotion" else ()
