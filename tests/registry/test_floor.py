"""The floor: a candidate is held against the best champion so far too, so that small losses do not add up."""

from dataclasses import asdict

import pytest

from gatehouse.evaluation.gate import Comparison, Evidence, RowCounts, applied_rules, verdict_of
from gatehouse.evaluation.spec import GatePolicy
from gatehouse.metrics.judging import profile_of
from gatehouse.metrics.tasks import BINARY
from gatehouse.registry.ledger import StaleVerdictError
from gatehouse.registry.promotion import archive, promote, rollback
from gatehouse.registry.stage import RegisterResult, ResolveRequest, resolve
from gatehouse.store.canonical import canonical_json
from gatehouse.store.identity import identity_of
from tests.registry.gate import NAME, Gate

POLICY = GatePolicy.model_validate({"must_beat_baseline": [], "leakage_alarm": {}, "slices": {}})
MANUAL = POLICY.model_copy(update={"approval": "manual"})


def _run(gate: Gate, losses: int, policy: GatePolicy = POLICY, with_floor: bool = True) -> RegisterResult:
    """Judge and register a candidate whose log loss is so many times 0.2 % above that of the first."""
    model, store = gate.model(losses), gate.store
    present = resolve(ResolveRequest(model_name=NAME, candidate=model, policy=policy), store)
    rivals = {"champion": present.champion, "floor": present.floor if with_floor else ""}

    def loss(reference: str) -> float:
        return 0.5 + 0.001 * int(store.manifest(reference).configuration["seed"])

    def against(other: str) -> Comparison | None:
        if not other:
            return None
        worse = loss(model) - loss(other)
        return Comparison("log_loss", loss(model), loss(other), worse, worse + 1e-4, worse - 1e-4)

    comparison, floor = (against(rivals[role]) for role in ("champion", "floor"))
    metrics = {"log_loss": loss(model)}
    evidence = Evidence(store.manifest(model), metrics, {}, comparison, {}, False, counted=RowCounts(1000), floor=floor)
    rules = applied_rules(policy.resolved(profile_of(BINARY)), evidence)
    body = {"verdict": verdict_of(rules), "rules": [asdict(rule) for rule in rules]}
    body |= {"comparison": comparison and asdict(comparison), "floor": floor and asdict(floor)}
    inputs = {"model": model, "training_set": gate.training_set, "split": gate.split}
    evaluation = store.publish(
        "evaluations",
        NAME,
        {"verdict.json": canonical_json(body), "metrics.json": canonical_json({"candidate": metrics})},
        derived_from=inputs | {role: rival for role, rival in rivals.items() if rival},
        configuration={"policy": identity_of(policy), "spec": {}},
    )
    return gate.register(model, str(evaluation))


def test_small_losses_do_not_add_up(gate: Gate) -> None:
    results = [_run(gate, losses) for losses in range(8)]
    assert [result.decision for result in results] == ["approved"] * 3 + ["refused"] * 5, "0.4 % are tolerated in sum"
    assert results[3].reasons[0].startswith("floor log_loss: expected not worse than the best champion so far's 0.5000")
    state = gate.state
    assert (state.champion, state.floor_other_than("")) == (3, gate.model(0))
    assert _run(gate, 2).decision == "approved", "what is settled stays so"
    assert _run(gate, -1).decision == "approved" and gate.state.floor_other_than("") == "", "a better one is the floor"


def test_only_a_person_lowers_the_floor(gate: Gate) -> None:
    for losses in range(3):
        _run(gate, losses)
    with pytest.raises(StaleVerdictError, match="best champion so far"):
        _run(gate, 3, with_floor=False)
    assert _run(gate, 3).decision == "refused"
    archive(gate.store, NAME, 1, "the sensors of its time are gone")
    assert gate.state.floor_other_than("") == ""
    assert _run(gate, 3).decision == "approved"
    assert gate.state.floor_other_than("") == gate.model(2), "the champion before it is better"
    assert _run(gate, 4, MANUAL).decision == "awaiting approval"
    gate.approve()
    assert promote(gate.store, NAME, 5).floor_other_than("") == "", "a person promoted what is worse"
    assert rollback(gate.store, NAME, 5).floor_other_than("") == gate.model(2)
