"""What verdicts do to the ledger: versions, aliases, refusals, stale verdicts, and repeats without effect."""

from typing import Any

import pytest

from gatehouse.errors import CorruptArtifactError
from gatehouse.evaluation.spec import GatePolicy
from gatehouse.registry.ledger import StaleVerdictError
from gatehouse.registry.promotion import archive, promote, rollback
from gatehouse.registry.registration import WrongEvaluationError
from gatehouse.registry.stage import NoChampionError, ResolveRequest, resolve
from gatehouse.store.canonical import canonical_json
from tests.registry.gate import MANUAL, NAME, Gate

MANUAL_FOR_LONG = GatePolicy(approval="manual", approval_days=30)
OTHER = GatePolicy(leakage_alarm={"roc_auc": 0.9})
BARS = {"roc_auc": {"min": 0.7}, "log_loss": {"max": 0.5}}


def test_the_first_candidate_that_passes_becomes_staging_and_champion_once(gate: Gate) -> None:
    with pytest.raises(NoChampionError):
        resolve(ResolveRequest(model_name=NAME, required=True), gate.store)
    model = gate.model(1)
    result = gate.run(model)
    assert (result.decision, result.version, result.aliases) == ("approved", 1, ("staging", "champion"))
    assert gate.run(model) == result
    assert gate.kinds == ["registered", "promoted staging", "promoted champion"]
    kinds = {identity.split("/")[0] for identity in gate.state.versions[0].lineage}
    assert kinds == {"training-sets", "splits", "snapshots", "datasets"}
    result = resolve(ResolveRequest(model_name=NAME, required=True), gate.store)
    assert (result.champion, result.training_set, result.split) == (model, gate.training_set, gate.split)


@pytest.mark.parametrize("approval", ["automatic", "manual"])
@pytest.mark.parametrize(
    ("action", "decision", "kinds"),
    [
        ("refuse", "inconclusive", ["refused"]),
        ("approval", "awaiting approval", ["registered", "promoted staging"]),
    ],
)
def test_an_inconclusive_verdict_promotes_nothing_and_asks_a_person_if_the_policy_says_so(
    gate: Gate, approval: str, action: str, decision: str, kinds: list[str]
) -> None:
    policy, model = GatePolicy.model_validate({"approval": approval, "inconclusive": action}), gate.model(1)
    evaluation = gate.evaluate(model, gate.resolve(model, policy), False, policy, "inconclusive")
    for _ in range(2):
        assert (gate.register(model, evaluation).decision, gate.kinds) == (decision, kinds)
    if action == "approval":
        gate.approve()
        promote(gate.store, NAME, 1)
        assert gate.register(model, evaluation).decision == "approved"


def test_earlier_candidates_of_the_same_test_set_are_counted(gate: Gate) -> None:
    first, second = gate.model(1), gate.model(2)
    assert gate.run(first).earlier_uses == 0
    gate.run(second, good=False)
    assert gate.run(second, good=False, policy=MANUAL).earlier_uses == 1
    third = gate.run(gate.model(3))
    assert third.earlier_uses == 2 and third.summary.startswith("2 other candidates")
    assert gate.run(first).earlier_uses == 0
    split = gate.store.publish("splits", "delay", {"a": "b"}, derived_from={"training_set": gate.training_set})
    assert Gate(gate.store, gate.training_set, str(split)).run(gate.model(4)).earlier_uses == 0


def test_a_candidate_is_never_compared_with_itself(gate: Gate) -> None:
    first, second = gate.model(1), gate.model(2)
    assert gate.resolve(first) == ""
    gate.run(first)
    assert (gate.resolve(first), gate.resolve(second)) == ("", first)
    gate.run(second)
    assert (gate.resolve(first), gate.resolve(second), gate.resolve(gate.model(3))) == ("", first, second)
    assert gate.resolve(second, OTHER) == first, "under another policy, the champion before it"
    result = gate.run(second, policy=OTHER)
    assert (result.version, result.aliases, gate.kinds[6:]) == (2, ("staging", "champion"), ["registered"])


@pytest.mark.parametrize(("judged", "against", "place"), [(1, 1, "with itself"), (2, 0, "judges")])
def test_an_evaluation_of_something_else_is_refused(gate: Gate, judged: int, against: int, place: str) -> None:
    evaluation = gate.evaluate(gate.model(judged), gate.model(against) if against else "")
    with pytest.raises(WrongEvaluationError, match=place):
        gate.register(gate.model(1), evaluation)
    assert gate.kinds == []


class Grown(GatePolicy):
    most_bytes: int | None = None


@pytest.mark.parametrize("change", [{"rules": []}, {"verdict": "refused"}])
def test_an_evaluation_whose_rules_do_not_lead_to_its_verdict_is_refused(gate: Gate, change: dict[str, Any]) -> None:
    model = gate.model(1)
    evaluation = gate.evaluate(model, "")
    manifest, verdict = gate.store.manifest(evaluation), gate.store.read_json(evaluation, "verdict.json")
    files = {"verdict.json": canonical_json(verdict | change)}
    inputs, settings = manifest.derived_from, manifest.configuration
    planted = gate.store.publish("evaluations", NAME, files, derived_from=inputs, configuration=settings)
    with pytest.raises(WrongEvaluationError, match="rules that lead"):
        gate.register(model, str(planted))
    assert gate.state.size == 0


def test_a_repeat_of_a_model_that_was_replaced_says_so(gate: Gate) -> None:
    for seed in (1, 2):
        gate.run(gate.model(seed))
    assert (gate.run(gate.model(1)).decision, gate.run(gate.model(2)).decision) == ("replaced", "approved")


@pytest.mark.parametrize(
    "policy",
    [
        GatePolicy.model_validate(
            {"bars": dict(reversed(BARS.items())), "must_beat_baseline": ["log_loss", "roc_auc"]}
        ),
        Grown.model_validate({"must_beat_baseline": ["roc_auc", "log_loss"], "bars": BARS}),
    ],
    ids=["other order", "new field"],
)
def test_a_policy_of_the_same_meaning_leaves_a_verdict_as_it_is(gate: Gate, policy: GatePolicy) -> None:
    original = GatePolicy.model_validate({"must_beat_baseline": ["roc_auc", "log_loss"], "bars": BARS})
    first, second = gate.model(1), gate.model(2)
    gate.run(first, policy=original)
    gate.run(second, policy=original)
    before = gate.kinds
    assert gate.resolve(second, policy) == first
    gate.run(second, policy=policy)
    assert gate.kinds == before


def test_a_refusal_is_recorded_once_with_its_reasons(gate: Gate) -> None:
    gate.run(gate.model(1))
    weak = gate.model(2)
    first = gate.run(weak, good=False)
    assert gate.run(weak, good=False) == first
    assert (first.decision, first.version, first.aliases) == ("refused", 0, ())
    assert first.reasons == ("bar roc_auc: expected at least 0.7, found 0.6",)
    assert (gate.kinds[3:], gate.state.champion) == (["refused"], 1)


def test_a_refusal_for_another_reason_is_recorded_with_it_and_can_be_exempted_from(gate: Gate) -> None:
    model = gate.model(1)
    for rule in ("bar roc_auc", "bar log_loss"):
        evaluation = gate.evaluate(model, "", good=False, rule=rule)
        for _ in range(2):
            assert gate.register(model, evaluation).reasons[0].startswith(rule)
        gate.exempt(model, rule)
    assert gate.kinds == ["refused", "exempted", "refused", "exempted"]
    assert gate.register(model, evaluation).decision == "approved"


def test_another_evaluation_with_the_same_verdict_counts_while_the_candidate_waits(gate: Gate) -> None:
    model = gate.model(1)
    first, second, third = (gate.evaluate(model, "", policy=MANUAL, rule=f"bar {name}") for name in "abc")
    gate.register(model, first)
    gate.approve()
    for _ in range(2):
        assert gate.register(model, second).decision == "awaiting approval"
    assert gate.state.versions[0].evaluation == second
    gate.approve()
    promote(gate.store, NAME, 1)
    before = gate.kinds
    assert gate.register(model, third).decision == "approved"
    assert gate.kinds == before


def test_a_former_champion_that_is_judged_again_waits_like_any_candidate(gate: Gate) -> None:
    first = gate.model(1)
    gate.run(first)
    assert gate.run(first, policy=MANUAL).decision == "approved"
    gate.run(gate.model(2))
    assert gate.run(first).decision == "replaced"
    assert gate.run(first, policy=MANUAL_FOR_LONG).decision == "awaiting approval"
    gate.approve(1)
    assert gate.run(first, policy=MANUAL_FOR_LONG).decision == "awaiting promotion"
    promote(gate.store, NAME, 1)
    assert gate.run(first, policy=MANUAL_FOR_LONG).decision == "approved"


def test_a_verdict_is_stale_once_the_champion_moved(gate: Gate) -> None:
    early, late = gate.model(1), gate.model(2)
    judged = gate.evaluate(late, gate.resolve(late))
    gate.run(early)
    with pytest.raises(StaleVerdictError):
        gate.register(late, judged)
    assert len(gate.kinds) == 3
    assert gate.run(late).version == 2


def test_a_candidate_may_be_judged_against_the_present_champion_whatever_was_settled(gate: Gate) -> None:
    first, refused, present = gate.model(1), gate.model(2), gate.model(3)
    gate.run(first)
    gate.run(refused, good=False)
    gate.run(present)
    before = gate.kinds
    result = gate.register(first, gate.evaluate(first, present, good=False))
    assert (result.decision, gate.kinds) == ("replaced", before), "a version that was champion once is not judged anew"
    assert (gate.resolve(refused), gate.resolve(refused, None)) == (first, present)
    assert gate.register(refused, gate.evaluate(refused, present)).version == 3


def test_manual_approval_waits_in_staging_until_a_person_promotes(gate: Gate) -> None:
    model = gate.model(1)
    waiting = gate.run(model, policy=MANUAL)
    assert (waiting.decision, waiting.aliases) == ("awaiting approval", ("staging",))
    before = gate.kinds
    assert gate.run(model, policy=MANUAL) == waiting and gate.kinds == before
    gate.approve()
    assert gate.run(model, policy=MANUAL).decision == "awaiting promotion"
    assert promote(gate.store, NAME, 0).champion == 1
    assert gate.run(model, policy=MANUAL).decision == "approved"
    assert gate.run(model, good=False, policy=GatePolicy(approval_days=3)).decision == "refused"


def test_two_waiting_candidates_do_not_take_staging_from_each_other(gate: Gate) -> None:
    for _ in range(2):
        for seed in (1, 2):
            gate.run(gate.model(seed), policy=MANUAL)
    assert gate.kinds == ["registered", "promoted staging"] * 2 and gate.state.staging == 2


def test_a_waiting_candidate_is_judged_again_once_the_champion_moved(gate: Gate) -> None:
    waiting, other = gate.model(1), gate.model(2)
    gate.run(waiting, policy=MANUAL)
    gate.run(other)
    with pytest.raises(StaleVerdictError):
        promote(gate.store, NAME, 1)
    assert gate.resolve(waiting, MANUAL) == other
    gate.run(waiting, policy=MANUAL)
    gate.approve(1)
    assert promote(gate.store, NAME, 1).champions == (2, 1)


@pytest.mark.parametrize("written", [1, 2])
def test_a_registration_that_was_killed_half_way_is_finished_by_the_next_run(
    gate: Gate, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    model, put, left = gate.model(1), gate.store.objects.put_bytes, iter(range(written))

    def dying(key: str, data: bytes) -> bool:
        if "/ledger/" in key and next(left, None) is None:
            raise KeyboardInterrupt
        return put(key, data)

    with monkeypatch.context() as patch:
        patch.setattr(gate.store.objects, "put_bytes", dying)
        with pytest.raises(KeyboardInterrupt):
            gate.run(model)
    assert len(gate.kinds) == written
    result = gate.run(model)
    assert (result.version, result.aliases, len(gate.kinds)) == (1, ("staging", "champion"), 3)


def test_a_run_promotes_no_candidate_that_was_rolled_back_or_archived(gate: Gate) -> None:
    first, second = gate.model(1), gate.model(2)
    gate.run(first)
    gate.run(second)
    rollback(gate.store, NAME, 2, "late at night")
    assert [gate.run(second).decision, gate.run(second, policy=OTHER).decision] == ["rolled back"] * 2
    assert gate.state.champion == 1
    archive(gate.store, NAME, 2)
    assert gate.run(second).decision == "archived"


def test_a_model_whose_data_was_altered_is_not_registered(gate: Gate) -> None:
    model = gate.model(1)
    evaluation = gate.evaluate(model, "")
    blob = gate.store.path(gate.training_set, "rows.csv")
    blob.chmod(0o644)
    blob.write_text("x\n2\n")
    with pytest.raises(CorruptArtifactError, match=r"rows\.csv"):
        gate.register(model, evaluation)
    assert gate.kinds == []
