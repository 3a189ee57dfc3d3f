"""The stages that record a live verdict in the ledger, and take a rollout one step: a share up, to champion, or back.

The state of a rollout is the ledger alone. A step is appended behind the records that it was decided on, or not at all.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from gatehouse.errors import ConfigurationError
from gatehouse.evaluation.spec import GatePolicy, LiveRules, RolloutRules
from gatehouse.registry.approval import ApprovalError, ExemptionError, now
from gatehouse.registry.ledger import (
    CANARY,
    CHAMPION,
    STAGING,
    WRITES_LEDGER,
    Ledger,
    LiveVerdict,
    Record,
    StaleVerdictError,
    State,
)
from gatehouse.registry.naming import NAME
from gatehouse.registry.projection import project
from gatehouse.registry.promotion import PromotionError, verified_promotion
from gatehouse.store.canonical import digest_of
from gatehouse.store.identity import operational
from gatehouse.store.parameters import as_written, checked
from gatehouse.store.stage import StageModel, stage
from gatehouse.store.store import ArtifactStore

Decision = Literal["began", "stepped", "promoted", "taken back", "waits", "overtaken", "nothing"]


class RecordRequest(StageModel):
    """An evaluation of `evaluate_live`. `by` is the person; empty for the user of the process."""

    evaluation: str
    by: str = operational("")


class RecordResult(StageModel):
    """The number of the ledger's record, and the digest of the live verdict."""

    number: int
    digest: str


@stage("record_live", title="Record the live verdict", effects=WRITES_LEDGER)
def record_live(request: RecordRequest, store: ArtifactStore) -> RecordResult:
    """Record the verdict of an evaluation on live outcomes in the ledger, once.

    Raises LedgerError if the versions that it names are not those of its models.
    """
    manifest = store.manifest(request.evaluation)
    facts, inputs, name = manifest.details, manifest.derived_from, manifest.name
    verdict = LiveVerdict(
        champion=inputs[CHAMPION],
        canary=inputs[CANARY],
        evaluation=request.evaluation,
        rules=rules_digest(LiveRules.model_validate(manifest.configuration["rules"])),
        verdict=facts["verdict"],
        reasons=tuple(facts["reasons"]),
        outcomes=facts["outcomes"],
        since=facts["records"],
    )
    record = Record(kind="compared", version=facts["canary"], live=verdict)

    def decide(state: State) -> Record | None:
        last = state.last_live(verdict.canary, verdict.champion)
        return None if last and last[1] == verdict else record

    state = Ledger(store, name).extend(decide, request.by)
    last = state.last_live(verdict.canary, verdict.champion)
    assert last is not None, "it was recorded, now or before"
    return RecordResult(number=last[0], digest=last[1].short)


def rules_digest(rules: LiveRules) -> str:
    """SHA-256 of the section `live` of a policy."""
    return digest_of(rules.model_dump(mode="json"))


class StepRequest(StageModel):
    """The rollout of a model, by the sections `live` and `rollout` of its policy. `by` is the person."""

    model_name: str = Field(pattern=NAME)
    rules: LiveRules
    rollout: RolloutRules = RolloutRules()
    by: str = operational("")


class StepResult(StageModel):
    """What was done with which version, the share that it has now, and why.

    `decision` is `began`, `stepped`, `promoted`, `taken back`; `waits` if something lacks, such as an approval;
    `overtaken` if another writer was faster, and the next look decides; `nothing` if no version waits.
    """

    decision: Decision
    version: int = 0
    share: float = 0.0
    reasons: tuple[str, ...] = ()


def next_step(state: State, rollout: RolloutRules, rules: str, hours: float) -> StepResult:
    """The next step of a rollout: a pure function of the ledger's state, the rules, and the hours at the present share.

    Without a canary, the version in staging begins at the first share. A canary goes back by the verdict *back*. It
    gets the next share, or from the last one becomes champion, by a live verdict that was measured at its present share
    and by the present rules, after enough hours and enough keys with an outcome at that share. The next share takes the
    verdict *go on* or *promote*, the champion *promote*.

    Args:
        rules: SHA-256 of the present section `live`.
    """
    champion, canary, staged = (state.version(state.holder(alias)) for alias in (CHAMPION, CANARY, STAGING))

    def step(decision: Decision, *reasons: str, version: int = 0, share: float = state.canary_share) -> StepResult:
        number = version or state.canary
        return StepResult(decision=decision, version=number, share=share, reasons=reasons)

    if champion is None:
        return step("nothing", "there is no champion to compare with: promote a first version")
    if canary is None:
        if staged is None or staged.version in state.champions:
            return step("nothing", "no version waits in staging")
        return step("began", "it waits in staging", version=staged.version, share=rollout.shares[0])
    number, live = state.last_live(canary.model, champion.model) or (0, None)
    if live is None or number < state.canary_at or live.rules != rules:
        of = "by the present rules " if live and number > state.canary_at else ""
        return step("waits", f"no live verdict {of}since record {state.canary_at}, which gave it its share")
    if live.verdict == "back":
        return step("taken back", f"{live.short}: back", *live.reasons, share=0.0)
    if live.since != state.canary_at:
        return step("waits", f"{live.short} was measured before record {state.canary_at}, which gave it its share")
    if hours < rollout.min_hours:
        return step("waits", f"it has had its share for {hours:.1f} hours, of at least {rollout.min_hours:g}")
    earlier = state.last_live(canary.model, champion.model, before=state.canary_at)
    new = live.outcomes - (earlier[1].outcomes if earlier else 0)
    if new < rollout.outcomes:
        few = f"{new:,} keys got an outcome since it got its share, of at least {rollout.outcomes:,}"
        return step("waits", few, *live.reasons)
    if higher := [share for share in rollout.shares if share > state.canary_share]:
        return step("stepped", f"{live.short}: {live.verdict}", share=higher[0])
    if live.verdict == "promote":
        return step("promoted", f"{live.short}: promote", share=1.0)
    return step("waits", *live.reasons)


@stage("step_rollout", title="Step the rollout", effects=WRITES_LEDGER)
def step_rollout(request: StepRequest, store: ArtifactStore) -> StepResult:
    """Take the rollout of a model one step, by the last live verdict in the ledger; a repeat takes no second one.

    Raises WrongEvaluationError, MissingArtifactError, CorruptArtifactError if the version is not as in the ledger.
    """
    ledger = Ledger(store, request.model_name)
    state, hours = ledger.state(), 0.0
    if state.canary_at:
        began = datetime.fromisoformat(str(ledger.records()[state.canary_at - 1].provenance["at"]))
        hours = (now() - began).total_seconds() / 3600
    step = next_step(state, request.rollout, rules_digest(request.rules), hours)
    lacking: dict[str, Any] = {"share": state.canary_share}
    record, reason = None, f"rollout after record {state.size}: {'; '.join(step.reasons)}"
    try:
        if step.decision in ("began", "stepped"):
            record = verified_promotion(ledger, state, step.version, reason, to=CANARY, share=step.share, by=request.by)
        elif step.decision == "promoted":
            record = verified_promotion(ledger, state, step.version, reason, by=request.by)
        elif step.decision == "taken back":
            record = Record(kind="withdrawn", version=step.version, reason=reason)
    except (ApprovalError, ExemptionError, PromotionError, StaleVerdictError) as error:
        step = step.model_copy(update=lacking | {"decision": "waits", "reasons": (str(error),)})
    after = ledger.append(record, state, request.by) if record else state
    if after is None:
        meanwhile = (f"record {state.size + 1} was added meanwhile",)
        step = step.model_copy(update=lacking | {"decision": "overtaken", "reasons": meanwhile})
    project(store, request.model_name, after or ledger.state(), "rollout:projection")
    return step


def logged_arms(store: ArtifactStore, name: str) -> str:
    """Reference of the log of canary and champion, as `collect_arms`; empty if there is no canary, or no row of it."""
    from gatehouse.monitoring.live_log import NoLogError
    from gatehouse.registry.live_stage import collect_arms

    state = Ledger(store, name).state()
    if not (state.canary and state.champion):
        return ""
    try:
        return collect_arms(store, name)
    except NoLogError:
        return ""


def sections_of(policy: Mapping[str, Any]) -> tuple[LiveRules, RolloutRules]:
    """The sections `live` and `rollout` of a policy. Raises ConfigurationError if it has no `live`."""
    checked_policy = checked("policy", GatePolicy, as_written(policy))
    if checked_policy.live is None:
        raise ConfigurationError("policy: expected a section `live` that says what must hold, found none.")
    return checked_policy.live, checked_policy.rollout
