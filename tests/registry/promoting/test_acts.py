"""What a person does to versions: promote, roll back, archive; and what the ledger refuses."""

import pytest

from gatehouse.registry.ledger import Ledger
from gatehouse.registry.promoting import acts
from gatehouse.registry.promoting.acts import PromotionError, archive, promote, rollback
from gatehouse.registry.promoting.stage import PromoteRequest
from gatehouse.registry.promoting.stage import promote as promote_stage
from gatehouse.registry.state import LedgerError, Record, StaleVerdictError, Verdict, fold
from gatehouse.store.store import ArtifactStore
from tests.registry.gate import MANUAL, NAME, Gate


@pytest.fixture
def three(gate: Gate) -> Gate:
    """Three champions, one after another."""
    for seed in (1, 2, 3):
        gate.run(gate.model(seed))
    return gate


def test_rollback_returns_to_the_champion_before_and_a_repeat_changes_nothing(three: Gate) -> None:
    assert rollback(three.store, NAME, 3).champion == 2
    assert rollback(three.store, NAME, 3).champion == 2
    assert rollback(three.store, NAME, 2).champion == 1
    with pytest.raises(PromotionError, match=f"Promote another: `gatehouse models promote {NAME}:3`"):
        rollback(three.store, NAME, 1)


def test_the_only_version_is_not_withdrawn_and_what_to_do_is_told(gate: Gate) -> None:
    gate.run(gate.model(1))
    with pytest.raises(PromotionError, match="Train another with `gatehouse run`"):
        rollback(gate.store, NAME, 1)


def test_a_version_that_was_rolled_back_is_promoted_again_only_by_number_and_with_a_reason(three: Gate) -> None:
    model = three.model(3)
    state = rollback(three.store, NAME, 3)
    assert (state.staging, state.champion) == (0, 2)
    with pytest.raises(PromotionError, match="found no version in staging"):
        promote(three.store, NAME, 0)
    for reason in ("", " "):
        with pytest.raises(PromotionError, match=r"Version 3 .* rolled back: expected a reason"):
            promote(three.store, NAME, 3, reason)
    again = three.run(model)
    assert (again.decision, again.version, again.aliases, again.alias) == ("rolled back", 3, (), "")
    judged_anew = three.run(model, policy=MANUAL)
    assert (judged_anew.decision, judged_anew.aliases) == ("rolled back", ())
    three.approve(3)
    state = promote(three.store, NAME, 3, "the sensor was mended")
    assert state.champion == 3 and Ledger(three.store, NAME).records()[-1].reason == "the sensor was mended"
    assert three.run(model).decision == "approved"


def test_another_version_keeps_staging_when_the_champion_is_rolled_back(three: Gate) -> None:
    three.run(three.model(4), policy=MANUAL)
    assert rollback(three.store, NAME, 3).staging == 4


def test_rollback_of_a_version_that_is_not_champion_names_the_champion(three: Gate) -> None:
    with pytest.raises(PromotionError, match="expected version 3"):
        rollback(three.store, NAME, 1)


def test_rollback_skips_archived_champions(three: Gate) -> None:
    archive(three.store, NAME, 2)
    assert rollback(three.store, NAME, 3).champion == 1


def test_the_champion_cannot_be_archived(three: Gate) -> None:
    with pytest.raises(PromotionError, match="roll back"):
        archive(three.store, NAME, 3)


def test_an_archived_version_cannot_be_promoted(three: Gate) -> None:
    archive(three.store, NAME, 1)
    with pytest.raises(PromotionError, match="archived"):
        promote(three.store, NAME, 1, "why not", override=True)


def test_promotion_against_another_champion_needs_an_override_with_a_reason(three: Gate) -> None:
    with pytest.raises(StaleVerdictError):
        promote(three.store, NAME, 1)
    for blank in ("", " \n"):
        with pytest.raises(PromotionError, match="needs a reason"):
            promote(three.store, NAME, 1, blank, override=True)
    state = promote(three.store, NAME, 1, "the newer two fail on rain", override=True)
    assert state.champions == (2, 3, 1)
    record = Ledger(three.store, NAME).records()[-1]
    assert (record.override, record.reason) == (True, "the newer two fail on rain")


def test_a_version_that_was_refused_since_is_not_promoted(gate: Gate) -> None:
    model = gate.model(1)
    gate.run(model, policy=MANUAL)
    gate.register(model, gate.evaluate(model, "", good=False, policy=MANUAL), MANUAL)
    with pytest.raises(PromotionError, match="bar roc_auc"):
        promote(gate.store, NAME, 1)


def test_unknown_versions_are_named_with_those_that_exist(three: Gate) -> None:
    others = ", ".join(str(each) for each in (1, 2, 3) if each != Ledger(three.store, NAME).state().champion)
    with pytest.raises(PromotionError, match=rf"version 9.*can be promoted: {others}\."):
        promote(three.store, NAME, 9)


def test_promoting_the_champion_changes_nothing(three: Gate) -> None:
    before = Ledger(three.store, NAME).state()
    assert promote(three.store, NAME, 3) == before


def test_the_stage_says_what_it_did_and_who_is_champion(three: Gate) -> None:
    result = promote_stage(PromoteRequest(model_name=NAME, action="rollback", version=3), three.store)
    assert (result.decision, result.version, result.aliases) == ("rolled back", 3, ())
    assert result.champion == three.model(2)


def test_the_version_in_staging_is_the_one_that_was_there_at_first(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    gate.run(gate.model(1), policy=MANUAL)
    gate.approve(1)
    require, held = acts.require_binding, []

    def overtaken(store: ArtifactStore, verdict: Verdict) -> None:
        require(store, verdict)
        if not held:
            gate.run(gate.model(2), policy=MANUAL)
            gate.approve(2)
        held.append(verdict.subject.model)

    monkeypatch.setattr(acts, "require_binding", overtaken)
    result = promote_stage(PromoteRequest(model_name=NAME), gate.store)
    assert (result.version, result.aliases, result.champion) == (1, ("champion",), gate.model(1))
    assert held == [gate.model(1)] * 2


def test_a_version_rises_through_shadow_and_canary_and_is_one_of_them_no_more_as_champion(three: Gate) -> None:
    three.run(three.model(4), policy=MANUAL)
    three.approve(4)
    for alias in ("shadow", "canary"):
        state = promote(three.store, NAME, 4, to=alias)
        assert (state.holder(alias), state.champion) == (4, 3)
    assert state.aliases_of(4) == ("staging", "shadow", "canary") and state.stage_of(state.versions[3]) == "canary"
    state = promote(three.store, NAME, 4)
    assert (state.champion, state.aliases_of(4)) == (4, ("staging", "champion"))
    for alias in ("shadow", "canary"):
        with pytest.raises(PromotionError, match=f"is the champion: expected another version for {alias}"):
            promote(three.store, NAME, 4, to=alias)
    with pytest.raises(PromotionError, match="staging, shadow, canary, champion, found 'best'"):
        promote(three.store, NAME, 4, to="best")


def test_a_canary_is_rolled_back_and_the_champion_stays(three: Gate) -> None:
    promote(three.store, NAME, 2, "a look back", override=True, to="canary")
    state = rollback(three.store, NAME, 2, "it was slow")
    assert (state.canary, state.champion, state.champions) == (0, 3, (1, 3))
    assert state.stage_of(state.versions[1]) == "rolled back"
    assert rollback(three.store, NAME, 2) == state
    assert rollback(three.store, NAME, 3).champion == 1


def test_a_canary_that_becomes_champion_by_a_rollback_is_the_champion_alone(three: Gate) -> None:
    promote(three.store, NAME, 2, "a look back", override=True, to="canary")
    state = rollback(three.store, NAME, 3)
    assert (state.champion, state.canary) == (2, 0)


def test_an_archived_version_holds_no_alias(three: Gate) -> None:
    promote(three.store, NAME, 2, "a look back", override=True, to="shadow")
    assert archive(three.store, NAME, 2).shadow == 0


@pytest.mark.parametrize("alias", ["canary", "shadow"])
def test_a_ledger_in_which_the_champion_is_something_else_too_is_refused(three: Gate, alias: str) -> None:
    records = Ledger(three.store, NAME).records()
    with pytest.raises(LedgerError, match=f"makes the champion the {alias}"):
        fold([*records, Record.model_validate({"kind": "promoted", "version": 3, "alias": alias})])
    with pytest.raises(LedgerError, match="withdraws version 3, the champion"):
        fold([*records, Record(kind="withdrawn", version=3)])
