"""The stage that promotes, rolls back or archives a registered version."""

from gatehouse.errors import ConfigurationError
from gatehouse.registry.ledger import WRITES_LEDGER, Ledger
from gatehouse.registry.projection import project
from gatehouse.registry.promoting import acts
from gatehouse.registry.state import CHAMPION
from gatehouse.store.identity import operational
from gatehouse.store.stage import StageModel, stage
from gatehouse.store.store import ArtifactStore

_DONE = {"promote": "promoted", "rollback": "rolled back", "archive": "archived"}


class PromoteRequest(StageModel):
    """An action on one version: `promote`, `rollback` or `archive`.

    For `promote`, version 0 is the one in staging, and `to` is its new alias. `by` is the person; empty for the user of
    the process.
    """

    model_name: str
    action: str = "promote"
    version: int = 0
    reason: str = ""
    override: bool = False
    to: str = CHAMPION
    by: str = operational("")


class PromoteResult(StageModel):
    """The version, its decision, its aliases afterwards, and the champion afterwards.

    `decision` is `promoted`, `rolled back`, `archived`, or for example `champion already` if nothing had to be done;
    `champion` is an identity, empty for none.
    """

    decision: str
    version: int
    aliases: tuple[str, ...]
    champion: str


@stage("promote", title="Move the champion alias", effects=WRITES_LEDGER)
def promote(request: PromoteRequest, store: ArtifactStore) -> PromoteResult:
    """Promote, roll back or archive a version, and update MLflow; a repeat changes nothing.

    Raises:
        ConfigurationError: if there is no such action.
        PromotionError: if the action is not possible for this version.
        StaleVerdictError: if the version was judged against another champion than the present one.
        ApprovalError: if the policy asks for an approval, and no valid one exists.
        WrongEvaluationError: if the evaluation contradicts the ledger.
    """
    if request.action not in _DONE:
        raise ConfigurationError(f"action: expected one of {', '.join(_DONE)}, found {request.action!r}.")
    name, reason = request.model_name, request.reason
    before = Ledger(store, name).state()
    version = request.version or before.staging
    if request.action == "promote":
        state = acts.promote(store, name, version, reason, request.override, request.to, request.by)
    else:
        act = acts.rollback if request.action == "rollback" else acts.archive
        state = act(store, name, request.version, reason, request.by)
    project(store, name, state, "promote:projection")
    champion = state.version(state.champion)
    known = request.action == "promote" and before.holder(request.to) == version
    return PromoteResult(
        decision=f"{request.to} already" if known else _DONE[request.action],
        version=version,
        aliases=state.aliases_of(version),
        champion=champion.model if champion else "",
    )
