"""A rollout: share by share to champion or back, killed at every write, several at once, and what it waits for."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from gatehouse.evaluation.spec import GatePolicy, LiveRules, RolloutRules
from gatehouse.registry import rollout_stage
from gatehouse.registry.explanation import explain
from gatehouse.registry.ledger import CANARY, CHAMPION, Ledger, Record
from gatehouse.registry.promotion import LiveVerdictError, promote, rollback
from gatehouse.registry.registration import WrongEvaluationError
from gatehouse.registry.rollout_stage import (
    RecordRequest,
    StepRequest,
    StepResult,
    next_step,
    record_live,
    rules_digest,
    step_rollout,
)
from gatehouse.store.canonical import canonical_json
from gatehouse.store.store import ArtifactStore
from tests.kills import killed_at, was_killed
from tests.registry.gate import MANUAL, NAME, Gate, make_gate

LIVE = LiveRules(metrics={"brier": 0.02})
POLICY = GatePolicy(live_required=True, live=LIVE)
ROLLOUT = RolloutRules(min_hours=0.0, outcomes=10)


@pytest.fixture
def staged(gate: Gate) -> Gate:
    """Version 1 is champion, and 2 waits in staging for live outcomes."""
    assert gate.run(gate.model(1), policy=POLICY).decision == "approved", "nothing can be compared with it"
    result = gate.run(gate.model(2), policy=POLICY)
    assert (result.decision, result.aliases) == ("awaiting promotion", ("staging",)) and "rollout" in result.reasons[0]
    return gate


def _look(gate: Gate, verdict: str, outcomes: int, rules: LiveRules = LIVE) -> str:
    """Publish and record a live evaluation of the present canary."""
    state = gate.state
    canary, champion = (state.versions[number - 1] for number in (state.canary, state.champion))
    details = {"verdict": verdict, "reasons": [] if verdict == "promote" else ["brier: so"], "outcomes": outcomes}
    details |= {"canary": canary.version, "champion": champion.version, "records": state.canary_at}
    reference = gate.store.publish(
        "live-evaluations",
        NAME,
        {"live.json": canonical_json(details)},
        derived_from={CHAMPION: champion.model, CANARY: canary.model},
        configuration={"rules": rules.model_dump(mode="json"), "label": "label"},
        details=details,
    )
    record_live(RecordRequest(evaluation=str(reference)), gate.store)
    return str(reference)


def _step(store: ArtifactStore, rollout: RolloutRules = ROLLOUT) -> StepResult:
    return step_rollout(StepRequest(model_name=NAME, rules=LIVE, rollout=rollout), store)


def test_a_canary_rises_share_by_share_and_each_step_needs_new_outcomes_and_its_own_verdict(staged: Gate) -> None:
    assert (first := _step(staged.store)).decision == "began" and (first.version, first.share) == (2, 0.01)
    assert "no live verdict" in _step(staged.store).reasons[0]
    _look(staged, "go on", 9)
    assert "9 keys" in _step(staged.store).reasons[0]
    _look(staged, "go on", 10)
    assert _step(staged.store).share == 0.05
    assert _step(staged.store).decision == "waits", "the verdict was about the share before"
    _look(staged, "promote", 19)
    assert "9 keys" in _step(staged.store).reasons[0]
    _look(staged, "promote", 20)
    assert _step(staged.store).share == 0.25
    _look(staged, "go on", 30)
    assert _step(staged.store).share == 0.5
    _look(staged, "go on", 300)
    assert _step(staged.store).reasons == ("brier: so",), "from the last share only promote leads on"
    _look(staged, "promote", 301)
    assert _step(staged.store).decision == "promoted" and staged.state.champion == 2
    assert _step(staged.store).decision == "nothing"
    acts = explain(staged.store, f"{NAME}:2").acts
    assert any(act.what.startswith("live verdict promote") for act in acts) and "after record" in acts[-1].reason


def test_a_worse_canary_goes_back_at_once_and_does_not_come_again(staged: Gate) -> None:
    _step(staged.store)
    _look(staged, "back", 3)
    result = _step(staged.store, RolloutRules(min_hours=99.0))
    assert (result.decision, result.reasons[1:]) == ("taken back", ("brier: so",))
    assert (staged.state.canary, staged.state.staging, staged.state.champion) == (0, 0, 1)
    assert _step(staged.store).decision == "nothing"
    promote(staged.store, NAME, 2, "the sensor was mended", to=CANARY, share=0.05)
    assert _step(staged.store).decision == "waits", "the old verdict is not about this attempt"


def test_a_verdict_by_other_rules_or_within_the_hours_leads_nowhere(staged: Gate) -> None:
    _step(staged.store)
    _look(staged, "promote", 50, LiveRules(metrics={"brier": 9.0}))
    assert "by the present rules" in _step(staged.store).reasons[0]
    _look(staged, "promote", 50)
    assert "0.0 hours, of at least 24" in _step(staged.store, RolloutRules()).reasons[0]
    rules = rules_digest(LIVE)
    decided = [next_step(staged.state, RolloutRules(outcomes=50), rules, hours).decision for hours in (-5, 23.9, 24)]
    assert decided == ["waits", "waits", "stepped"]


def test_the_policy_asks_for_a_live_verdict_before_a_champion_but_for_an_override(staged: Gate) -> None:
    with pytest.raises(LiveVerdictError, match="found none"):
        promote(staged.store, NAME, 2)
    _step(staged.store)
    _look(staged, "go on", 20)
    with pytest.raises(LiveVerdictError, match="found go on: brier"):
        promote(staged.store, NAME, 2)
    _look(staged, "promote", 30)
    ledger = Ledger(staged.store, NAME)
    forged = ledger.state().live[-1][1].model_copy(update={"evaluation": ledger.state().live[0][1].evaluation})
    ledger.append(Record(kind="compared", version=2, live=forged), ledger.state())
    with pytest.raises(WrongEvaluationError, match="live-evaluations"):
        promote(staged.store, NAME, 2)
    _look(staged, "promote", 31)
    assert promote(staged.store, NAME, 2).champion == 2
    rollback(staged.store, NAME, 2)
    staged.run(staged.model(3), policy=POLICY)
    assert promote(staged.store, NAME, 3, "an emergency", override=True).champion == 3
    assert Ledger(staged.store, NAME).records()[-1].override


def test_a_rollout_waits_for_a_person_where_the_policy_does(gate: Gate) -> None:
    gate.run(gate.model(1))
    gate.run(gate.model(2), policy=MANUAL)
    assert (waits := _step(gate.store)).decision == "waits" and "models approve" in waits.reasons[0]
    gate.approve(2)
    assert _step(gate.store).decision == "began"
    rollback(gate.store, NAME, 2)
    assert _step(gate.store).decision == "nothing"


def _whole_rollout(store: ArtifactStore, training_set: str, split: str) -> None:
    """What a schedule does until a champion: a look, then a step. Each look is on twenty more outcomes per share."""
    gate = Gate(store, training_set, split)
    while (state := gate.state).champion == 1:
        if state.canary:
            shares = (0.01, 0.05, 0.25, 0.5)
            _look(gate, "promote", 20 * (1 + shares.index(state.canary_share)))
        _step(store)


@pytest.mark.parametrize("written", [False, True])
def test_killed_at_every_write_and_repeated_it_takes_each_step_once(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, written: bool
) -> None:
    monkeypatch.setattr("gatehouse.registry.projection.tracking_of", lambda store: None)

    def attempt(at: int) -> tuple[list[str], bool]:
        store = ArtifactStore.open(tmp_path / f"{at}")
        gate = make_gate(store)
        gate.run(gate.model(1))
        gate.run(gate.model(2), policy=POLICY)
        with killed_at(store, at, written, "registry/"):
            killed = was_killed(lambda: _whole_rollout(store, gate.training_set, gate.split))
        again = ArtifactStore.open(tmp_path / f"{at}")
        _whole_rollout(again, gate.training_set, gate.split)
        return Gate(again, gate.training_set, gate.split).kinds, killed

    whole, _ = attempt(0)
    assert whole[5:] == ["promoted canary", *["compared", "promoted canary"] * 3, "compared", "promoted champion"]
    at, killed = 0, True
    while killed:
        at += 1
        kinds, killed = attempt(at)
        assert kinds == whole, at
    assert at > 20


def test_of_several_rollouts_at_once_one_takes_the_step(staged: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    _step(staged.store)
    _look(staged, "promote", 30)
    with ThreadPoolExecutor(8) as threads:
        stores = [ArtifactStore.open(staged.store.address) for _ in range(8)]
        decisions = [result.decision for result in threads.map(_step, stores)]
    assert decisions.count("stepped") == 1 and {*decisions} <= {"stepped", "overtaken", "waits"}
    assert staged.kinds.count("promoted canary") == 2
    _look(staged, "promote", 60)
    verified = rollout_stage.verified_promotion

    def overtaken(*arguments: Any, **more: Any) -> Record | None:
        record = verified(*arguments, **more)
        monkeypatch.setattr(rollout_stage, "verified_promotion", verified)
        assert _step(ArtifactStore.open(staged.store.address)).decision == "stepped"
        return record

    monkeypatch.setattr(rollout_stage, "verified_promotion", overtaken)
    assert (second := _step(staged.store)).decision == "overtaken" and "meanwhile" in second.reasons[0]
    assert staged.state.canary_share == 0.25
