"""What a person does to versions: promote, roll back, archive; and what the ledger refuses."""

from collections.abc import Callable

import pytest

from gatehouse.registry import promotion
from gatehouse.registry.ledger import SHARE, Ledger, StaleVerdictError, Verdict
from gatehouse.registry.naming import UnknownVersionError
from gatehouse.registry.promotion import PromotionError, archive, promote, rollback
from gatehouse.registry.stage import PromoteRequest
from gatehouse.registry.stage import promote as promote_stage
from gatehouse.store.store import ArtifactStore
from tests.registry.gate import MANUAL, NAME, Gate


def test_an_unknown_version_is_a_mistake_of_the_request_as_an_unknown_model_is(three: Gate) -> None:
    """Exit code 4 in both, whatever else is in the store."""
    for model, version in ((NAME, 9), ("unknown", 1)):
        for action in (promote, rollback, archive):
            with pytest.raises(UnknownVersionError):
                action(three.store, model, version, "a reason")


def test_rollback_returns_to_the_champion_before_and_a_repeat_changes_nothing(three: Gate) -> None:
    result = promote_stage(PromoteRequest(model_name=NAME, action="rollback", version=3), three.store)
    assert (result.decision, result.version, result.aliases) == ("rolled back", 3, ())
    assert result.champion == three.model(2)
    assert rollback(three.store, NAME, 3).champion == 2
    assert rollback(three.store, NAME, 2).champion == 1
    with pytest.raises(PromotionError, match="first champion"):
        rollback(three.store, NAME, 1)


def test_a_version_that_was_rolled_back_is_promoted_again_only_by_number_and_with_a_reason(three: Gate) -> None:
    model = three.model(3)
    state = rollback(three.store, NAME, 3)
    assert (state.staging, state.champion) == (0, 2)
    for version, reason in ((0, "why"), (3, ""), (3, " ")):
        with pytest.raises(PromotionError):
            promote(three.store, NAME, version, reason)
    for policy in (None, MANUAL):
        result = three.run(model, policy=policy) if policy else three.run(model)
        assert (result.decision, result.version, result.aliases, result.alias) == ("rolled back", 3, (), "")
    three.approve(3)
    assert promote(three.store, NAME, 3, "the sensor was mended").champion == 3
    assert Ledger(three.store, NAME).records()[-1].reason == "the sensor was mended"
    assert three.run(model).decision == "approved"


def test_a_rolled_back_version_in_staging_can_be_rolled_back_again(three: Gate) -> None:
    rollback(three.store, NAME, 3)
    three.approve(3)
    assert promote(three.store, NAME, 3, "the sensor was mended", to="staging").staging == 3
    assert rollback(three.store, NAME, 3).staging == 0


def test_another_version_keeps_staging_when_the_champion_is_rolled_back(three: Gate) -> None:
    three.run(three.model(4), policy=MANUAL)
    assert rollback(three.store, NAME, 3).staging == 4


def test_rollback_skips_archived_champions(three: Gate) -> None:
    archive(three.store, NAME, 2)
    assert rollback(three.store, NAME, 3).champion == 1


Action = Callable[[ArtifactStore], object]


@pytest.mark.parametrize(
    ("action", "error", "place"),
    [
        (lambda store: rollback(store, NAME, 1), PromotionError, f"{NAME}:1 is not the champion: expected 3"),
        (lambda store: archive(store, NAME, 3), PromotionError, f"{NAME}:3 is the champion"),
        (lambda store: promote(store, NAME, 2, "why not", override=True), PromotionError, f"{NAME}:2 is archived"),
        (lambda store: promote(store, NAME, 1), StaleVerdictError, f"{NAME}:1 was judged against no champion"),
        (lambda store: promote(store, NAME, 1, "", override=True), PromotionError, "reason"),
        (lambda store: promote(store, NAME, 1, " \n", override=True), PromotionError, "reason"),
        (lambda store: promote(store, NAME, 9), UnknownVersionError, r"version 9\. .* can be promoted: 1\."),
        (lambda store: promote(store, NAME, 3, to="canary"), PromotionError, "another version for canary"),
        (lambda store: promote(store, NAME, 3, to="shadow"), PromotionError, "another version for shadow"),
        (lambda store: promote(store, NAME, 3, to="best"), PromotionError, "found 'best'"),
        (lambda store: promote(store, NAME, 1, to="shadow", share=0.5), PromotionError, "found 0.5 for shadow"),
        (lambda store: promote(store, NAME, 1, to="canary", share=1.5), PromotionError, "found 1.5 for canary"),
    ],
)
def test_an_action_that_is_impossible_is_refused(
    three: Gate, action: Action, error: type[Exception], place: str
) -> None:
    before = archive(three.store, NAME, 2)
    with pytest.raises(error, match=place):
        action(three.store)
    assert three.state == before


def test_promotion_against_another_champion_needs_an_override_with_a_reason(three: Gate) -> None:
    assert promote(three.store, NAME, 1, "the newer two fail on rain", override=True).champions == (2, 3, 1)
    record = Ledger(three.store, NAME).records()[-1]
    assert (record.override, record.reason) == (True, "the newer two fail on rain")
    assert promote(three.store, NAME, 1) == three.state, "it is champion already"


def test_a_version_that_was_refused_since_is_not_promoted(gate: Gate) -> None:
    model = gate.model(1)
    gate.run(model, policy=MANUAL)
    gate.register(model, gate.evaluate(model, "", good=False, policy=MANUAL))
    with pytest.raises(PromotionError, match="bar roc_auc"):
        promote(gate.store, NAME, 1)


def test_the_version_in_staging_is_the_one_that_was_there_at_first(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    gate.run(gate.model(1), policy=MANUAL)
    gate.approve(1)
    require, judged = promotion.require_binding, []

    def overtaken(store: ArtifactStore, verdict: Verdict) -> None:
        require(store, verdict)
        if not judged:
            gate.run(gate.model(2), policy=MANUAL)
            gate.approve(2)
        judged.append(verdict.subject.model)

    monkeypatch.setattr(promotion, "require_binding", overtaken)
    result = promote_stage(PromoteRequest(model_name=NAME), gate.store)
    assert (result.version, result.aliases, result.champion) == (1, ("champion",), gate.model(1))
    assert judged == [gate.model(1)] * 2


def test_a_version_rises_through_shadow_and_canary_and_leaves_them_as_champion(three: Gate) -> None:
    three.run(three.model(4), policy=MANUAL)
    three.approve(4)
    for alias in ("shadow", "canary"):
        state = promote(three.store, NAME, 4, to=alias)
        assert (state.holder(alias), state.champion) == (4, 3)
    assert state.aliases_of(4) == ("staging", "shadow", "canary") and state.stage_of(state.versions[3]) == "canary"
    state = promote(three.store, NAME, 4)
    assert (state.champion, state.aliases_of(4)) == (4, ("staging", "champion"))


def test_a_share_of_a_canary_rises_as_a_promotion_does_and_falls_at_any_time(three: Gate) -> None:
    three.run(three.model(4), policy=MANUAL)
    three.approve(4)
    assert promote(three.store, NAME, 4, to="canary").canary_share == SHARE
    assert promote(three.store, NAME, 4, to="canary", share=0.25).canary_share == 0.25
    before = three.state
    assert (
        promote(three.store, NAME, 4, to="canary", share=0.25) == promote(three.store, NAME, 4, to="canary") == before
    )
    rollback(three.store, NAME, 3)
    with pytest.raises(StaleVerdictError):
        promote(three.store, NAME, 4, to="canary", share=0.5)
    result = promote_stage(PromoteRequest(model_name=NAME, version=4, to="canary", share=0.01), three.store)
    assert (result.decision, three.state.canary_share) == ("promoted", 0.01)
    assert [record.share for record in Ledger(three.store, NAME).records()][-4:] == [None, 0.25, None, 0.01]
    assert rollback(three.store, NAME, 4).canary_share == 0.0


def test_a_canary_is_rolled_back_and_the_champion_stays(three: Gate) -> None:
    promote(three.store, NAME, 2, "a look back", override=True, to="canary")
    state = rollback(three.store, NAME, 2, "it was slow")
    assert (state.canary, state.champion, state.champions) == (0, 3, (1, 3))
    assert state.stage_of(state.versions[1]) == "rolled back"
    assert rollback(three.store, NAME, 2) == state
    assert rollback(three.store, NAME, 3).champion == 1


def test_a_canary_that_becomes_champion_or_is_archived_is_no_canary_any_more(three: Gate) -> None:
    for version in (1, 2):
        promote(three.store, NAME, version, "a look back", override=True, to="canary")
    assert promote(three.store, NAME, 1, "a look back", override=True, to="shadow").shadow == 1
    assert archive(three.store, NAME, 1).shadow == 0
    state = rollback(three.store, NAME, 3)
    assert (state.champion, state.canary) == (2, 0)
