"""What verdicts do to the ledger: versions, aliases, refusals, stale verdicts, and no-ops."""

from collections.abc import Callable

import pytest

from gatehouse.errors import CorruptArtifactError
from gatehouse.evaluation.spec import GatePolicy
from gatehouse.registry.champion.stage import ChampionRequest, NoChampionError, champion
from gatehouse.registry.ledger import Ledger
from gatehouse.registry.promoting.acts import archive, promote, rollback
from gatehouse.registry.registering.evaluated import WrongEvaluationError
from gatehouse.registry.state import StaleVerdictError
from tests.registry.gate import MANUAL, NAME, Gate

MANUAL_FOR_LONG = GatePolicy(approval="manual", approval_days=30)
BARS = {"roc_auc": {"min": 0.7}, "log_loss": {"max": 0.5}}


def _kinds(gate: Gate) -> list[str]:
    return [f"{record.kind} {record.alias}".strip() for record in Ledger(gate.store, NAME).records()]


def test_the_first_candidate_that_passes_becomes_staging_and_champion(gate: Gate) -> None:
    result = gate.run(gate.model(1))
    assert (result.decision, result.version, result.aliases) == ("approved", 1, ("staging", "champion"))
    assert _kinds(gate) == ["registered", "promoted staging", "promoted champion"]


@pytest.mark.parametrize("approval", ["automatic", "manual"])
@pytest.mark.parametrize(
    ("action", "decision", "kinds"),
    [
        ("refuse", "inconclusive", ["refused"]),
        ("approval", "awaiting approval", ["registered", "promoted staging"]),
    ],
)
def test_an_inconclusive_verdict_promotes_nothing_and_asks_a_person_where_the_policy_says_so(
    gate: Gate, approval: str, action: str, decision: str, kinds: list[str]
) -> None:
    policy, model = GatePolicy.model_validate({"approval": approval, "inconclusive": action}), gate.model(1)
    evaluation = gate.evaluate(model, gate.resolve(model, policy), False, policy, "inconclusive")
    for _ in range(2):
        result = gate.register(model, evaluation, policy)
        assert (result.decision, _kinds(gate)) == (decision, kinds)
    if action == "approval":
        gate.approve()
        promote(gate.store, NAME, 1)
        assert gate.register(model, evaluation, policy).decision == "approved"


def test_running_again_with_nothing_changed_writes_nothing(gate: Gate, ledger_keys: Callable[[], list[str]]) -> None:
    model = gate.model(1)
    first = gate.run(model)
    before = ledger_keys()
    assert gate.run(model) == first
    assert ledger_keys() == before


def test_earlier_candidates_of_the_same_test_set_are_counted(gate: Gate) -> None:
    first, second = gate.model(1), gate.model(2)
    assert gate.run(first).earlier_uses == 0
    gate.run(second, good=False)
    assert gate.run(second, good=False, policy=MANUAL).earlier_uses == 1
    third = gate.run(gate.model(3))
    told = f"2 other candidates of {NAME} were judged on this test set before"
    assert (third.earlier_uses, third.summary) == (2, told)
    assert gate.run(first).earlier_uses == 0
    again = gate.store.publish("splits", "delay", {"a": "b"}, derived_from={"training_set": gate.training_set})
    assert Gate(gate.store, gate.training_set, str(again)).run(gate.model(4)).earlier_uses == 0


def test_a_champion_that_is_trained_again_is_not_compared_with_itself(gate: Gate) -> None:
    first, second = gate.model(1), gate.model(2)
    assert gate.resolve(first) == ""
    gate.run(first)
    assert gate.resolve(first) == ""
    assert gate.resolve(second) == first
    gate.run(second)
    assert gate.resolve(second) == first
    assert gate.resolve(first) == ""
    assert gate.resolve(gate.model(3)) == second


def test_under_another_policy_the_champion_is_judged_against_the_one_before_it(gate: Gate) -> None:
    first, second = gate.model(1), gate.model(2)
    gate.run(first)
    gate.run(second)
    other = GatePolicy(leakage_alarm={"roc_auc": 0.9})
    assert gate.resolve(second, other) == first
    result = gate.run(second, policy=other)
    assert (result.version, result.aliases) == (2, ("staging", "champion"))
    assert _kinds(gate)[6:] == ["registered"]


def test_an_evaluation_of_the_candidate_against_itself_is_not_accepted(gate: Gate) -> None:
    model = gate.model(1)
    with pytest.raises(WrongEvaluationError, match="with itself"):
        gate.register(model, gate.evaluate(model, champion=model))
    assert _kinds(gate) == []


def test_an_evaluation_of_another_model_is_not_accepted(gate: Gate) -> None:
    strong, weak = gate.model(1), gate.model(2)
    with pytest.raises(WrongEvaluationError, match="judges"):
        gate.register(weak, gate.evaluate(strong, champion=""))


def test_an_evaluation_under_another_policy_is_not_accepted(gate: Gate) -> None:
    model = gate.model(1)
    lenient = GatePolicy(leakage_alarm={})
    with pytest.raises(WrongEvaluationError, match="leakage_alarm"):
        gate.register(model, gate.evaluate(model, "", policy=lenient))


class Grown(GatePolicy):
    """A policy of a later version, with a rule that this one does not have."""

    most_bytes: int | None = None


@pytest.mark.parametrize(
    "policy",
    [
        GatePolicy.model_validate({"must_beat_baseline": ["roc_auc", "log_loss"], "bars": BARS}),
        GatePolicy.model_validate(
            {"bars": dict(reversed(BARS.items())), "must_beat_baseline": ["log_loss", "roc_auc"]}
        ),
        Grown.model_validate({"must_beat_baseline": ["roc_auc", "log_loss"], "bars": BARS}),
    ],
    ids=["same", "other order", "new field"],
)
def test_a_policy_of_the_same_meaning_leaves_a_verdict_as_it_is(gate: Gate, policy: GatePolicy) -> None:
    given = GatePolicy.model_validate({"must_beat_baseline": ["roc_auc", "log_loss"], "bars": BARS})
    first, second = gate.model(1), gate.model(2)
    gate.run(first, policy=given)
    evaluation = gate.evaluate(second, gate.resolve(second, given), policy=given)
    gate.register(second, evaluation, given)
    before = _kinds(gate)
    assert gate.resolve(second, policy) == first
    gate.register(second, evaluation, policy)
    assert _kinds(gate) == before


def test_a_refusal_is_recorded_once_with_its_reasons(gate: Gate) -> None:
    gate.run(gate.model(1))
    weak = gate.model(2)
    first, again = gate.run(weak, good=False), gate.run(weak, good=False)
    assert first == again
    assert (first.decision, first.version, first.aliases) == ("refused", 0, ())
    assert first.reasons == ("bar roc_auc: expected at least 0.7, found 0.6",)
    assert _kinds(gate)[3:] == ["refused"]
    assert Ledger(gate.store, NAME).state().champion == 1


def test_a_refusal_for_another_reason_is_recorded_with_it_and_can_be_exempted_from(gate: Gate) -> None:
    model = gate.model(1)
    for rule in ("bar roc_auc", "bar log_loss"):
        evaluation = gate.evaluate(model, "", good=False, rule=rule)
        for _ in range(2):
            assert gate.register(model, evaluation).reasons[0].startswith(rule)
        gate.exempt(model, rule)
    assert _kinds(gate) == ["refused", "exempted", "refused", "exempted"]
    assert gate.register(model, evaluation).decision == "approved"


def test_another_evaluation_with_the_same_verdict_counts_while_the_candidate_waits(gate: Gate) -> None:
    model = gate.model(1)
    first, second, third = (gate.evaluate(model, "", policy=MANUAL, rule=f"bar {name}") for name in "abc")
    gate.register(model, first, MANUAL)
    gate.approve()
    for _ in range(2):
        assert gate.register(model, second, MANUAL).decision == "awaiting approval"
    assert Ledger(gate.store, NAME).state().versions[0].evaluation == second
    gate.approve()
    promote(gate.store, NAME, 1)
    before = _kinds(gate)
    assert gate.register(model, third, MANUAL).decision == "approved"
    assert _kinds(gate) == before


def test_a_former_champion_that_is_judged_again_waits_like_any_candidate(gate: Gate) -> None:
    first = gate.model(1)
    gate.run(first)
    assert gate.run(first, policy=MANUAL).decision == "approved"
    gate.run(gate.model(2))
    assert gate.run(first).decision == "approved"
    assert gate.run(first, policy=MANUAL_FOR_LONG).decision == "awaiting approval"
    gate.approve(1)
    assert gate.run(first, policy=MANUAL_FOR_LONG).decision == "awaiting promotion"
    promote(gate.store, NAME, 1)
    assert gate.run(first, policy=MANUAL_FOR_LONG).decision == "approved"


def test_a_verdict_is_stale_once_the_champion_moved(gate: Gate) -> None:
    early, late = gate.model(1), gate.model(2)
    judged = gate.evaluate(late, gate.resolve(late))
    gate.run(early)
    with pytest.raises(StaleVerdictError, match=r"it would replace models/delays/\S+ now: .*Run the pipeline again"):
        gate.register(late, judged)
    assert len(_kinds(gate)) == 3
    assert gate.run(late).version == 2


def test_manual_approval_waits_in_staging_until_a_person_promotes(
    gate: Gate, ledger_keys: Callable[[], list[str]]
) -> None:
    model = gate.model(1)
    waiting = gate.run(model, policy=MANUAL)
    assert (waiting.decision, waiting.aliases) == ("awaiting approval", ("staging",))
    before = ledger_keys()
    assert gate.run(model, policy=MANUAL) == waiting and ledger_keys() == before
    gate.approve()
    assert gate.run(model, policy=MANUAL).decision == "awaiting promotion"
    assert promote(gate.store, NAME, 0).champion == 1
    assert gate.run(model, policy=MANUAL).decision == "approved"


def test_two_waiting_candidates_do_not_take_staging_from_each_other(
    gate: Gate, ledger_keys: Callable[[], list[str]]
) -> None:
    first, second = gate.model(1), gate.model(2)
    gate.run(first, policy=MANUAL)
    gate.run(second, policy=MANUAL)
    before = ledger_keys()
    gate.run(first, policy=MANUAL)
    gate.run(second, policy=MANUAL)
    assert ledger_keys() == before
    assert Ledger(gate.store, NAME).state().staging == 2


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
    model = gate.model(1)
    put, count = gate.store.objects.put_bytes, 0

    def dying(key: str, data: bytes) -> bool:
        nonlocal count
        if "/ledger/" in key:
            count += 1
            if count > written:
                raise KeyboardInterrupt
        return put(key, data)

    monkeypatch.setattr(gate.store.objects, "put_bytes", dying)
    with pytest.raises(KeyboardInterrupt):
        gate.run(model)
    monkeypatch.undo()
    monkeypatch.setattr("gatehouse.registry.projection.tracking_of", lambda store: None)
    assert len(_kinds(gate)) == written
    result = gate.run(model)
    assert (result.version, result.aliases) == (1, ("staging", "champion"))
    assert len(_kinds(gate)) == 3


def test_half_a_registration_that_was_overtaken_is_judged_again(gate: Gate) -> None:
    slow, fast = gate.model(1), gate.model(2)
    gate.run(slow, policy=MANUAL)
    gate.run(fast)
    assert gate.resolve(slow) == fast
    result = gate.run(slow)
    assert (result.version, result.aliases) == (1, ("staging", "champion"))
    assert Ledger(gate.store, NAME).state().champions == (2, 1)


def test_a_candidate_that_was_rolled_back_is_not_promoted_by_a_run(gate: Gate) -> None:
    first, second = gate.model(1), gate.model(2)
    gate.run(first)
    gate.run(second)
    rollback(gate.store, NAME, 2, "late at night")
    assert gate.run(second).decision == "rolled back"
    assert gate.run(second, policy=GatePolicy(leakage_alarm={"roc_auc": 0.9})).decision == "rolled back"
    assert Ledger(gate.store, NAME).state().champion == 1


def test_an_archived_candidate_stays_archived(gate: Gate) -> None:
    first, second = gate.model(1), gate.model(2)
    gate.run(first)
    gate.run(second)
    archive(gate.store, NAME, 1)
    assert gate.run(first).decision == "archived"


def test_a_model_whose_data_was_altered_is_not_registered(gate: Gate) -> None:
    model = gate.model(1)
    evaluation = gate.evaluate(model, "")
    blob = gate.store.path(gate.training_set, "rows.csv")
    blob.chmod(0o644)
    blob.write_text("x\n2\n")
    with pytest.raises(CorruptArtifactError, match=r"rows\.csv"):
        gate.register(model, evaluation)
    assert _kinds(gate) == []


def test_a_version_carries_its_whole_lineage(gate: Gate) -> None:
    gate.run(gate.model(1))
    version = Ledger(gate.store, NAME).state().versions[0]
    assert {identity.split("/")[0] for identity in version.lineage} == {
        *("training-sets", "splits", "snapshots", "datasets"),
    }


def test_the_champion_stage_names_what_it_was_trained_on(gate: Gate) -> None:
    with pytest.raises(NoChampionError, match="Run the training pipeline"):
        champion(ChampionRequest(model_name=NAME), gate.store)
    model = gate.model(1)
    gate.run(model)
    found = champion(ChampionRequest(model_name=NAME), gate.store)
    assert (found.model, found.training_set, found.split) == (model, gate.training_set, gate.split)


def test_a_policy_that_asks_a_person_where_rows_cannot_tell_asks_nobody_of_a_pass(gate: Gate) -> None:
    policy = GatePolicy(inconclusive="approval")
    assert gate.run(gate.model(1), policy=policy).decision == "approved"
    assert gate.run(gate.model(2), policy=policy).decision == "approved"


def test_a_version_that_is_refused_under_another_policy_is_told_so(gate: Gate) -> None:
    gate.run(gate.model(1))
    waiting = gate.run(gate.model(2), policy=MANUAL)
    assert waiting.decision == "awaiting approval"
    assert gate.run(gate.model(2), good=False, policy=GatePolicy(approval_days=3)).decision == "refused"
