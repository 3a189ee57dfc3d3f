"""Records that cannot follow those before them are refused, and what is told of a state holds at its edges."""

from typing import Any

import pytest

from gatehouse.registry.ledger import Ledger
from gatehouse.registry.promoting.acts import PromotionError
from gatehouse.registry.registering.evaluated import WrongEvaluationError
from gatehouse.registry.state import LedgerError, Record, Subject, Verdict, fold
from gatehouse.store.store import ArtifactStore

VERDICTS = [
    Verdict(
        subject=Subject(model=f"models/m/sha256-{number:064x}", training_set="t", split="s", policy="p"),
        champion="",
        evaluation="e",
        verdict="pass",
    )
    for number in range(4)
]
REGISTERED = [Record(kind="registered", version=number, verdict=VERDICTS[number]) for number in (1, 2, 3)]
CHAMPIONS = [Record(kind="promoted", version=number, alias="champion") for number in (1, 2)]
ARCHIVED = Record(kind="archived", version=3)


@pytest.mark.parametrize(
    ("record", "told"),
    [
        ({"kind": "registered", "version": 7, "verdict": VERDICTS[0]}, "as version 7; expected version 4"),
        ({"kind": "promoted", "version": 3, "alias": "staging"}, "which is archived"),
        ({"kind": "promoted", "version": 1}, "promotes to no alias"),
        ({"kind": "rolled_back", "version": 3}, "returns to version 3; expected a former champion among"),
        ({"kind": "archived", "version": 2}, "archives version 2, the champion"),
        ({"kind": "withdrawn", "version": 2}, "withdraws version 2, the champion"),
    ],
)
def test_a_record_that_cannot_follow_is_refused(record: dict[str, Any], told: str) -> None:
    with pytest.raises(LedgerError, match=told) as raised:
        fold([*REGISTERED, *CHAMPIONS, ARCHIVED, Record.model_validate(record)])
    assert raised.value.permanent


def test_a_version_is_told_by_what_it_was() -> None:
    state = fold([*REGISTERED, *CHAMPIONS, ARCHIVED])
    assert [state.stage_of(each) for each in state.versions] == ["replaced", "champion", "archived"]
    assert state.stage_of(fold(REGISTERED).versions[0]) == "replaced"
    assert fold(REGISTERED).stage_of(state.versions[0]) == "candidate"


def test_a_verdict_is_known_by_its_record_and_is_no_use_before_itself() -> None:
    refused = VERDICTS[0].model_copy(update={"verdict": "refused"})
    state = fold([*REGISTERED, Record(kind="refused", verdict=refused)])
    assert state.verdict_on(refused.subject) == (4, refused)
    assert state.settled(4, refused)
    # The model of the first record was judged again: that is no earlier candidate of its own, nor of the second.
    assert [state.uses_before(number, VERDICTS[number % 4].subject) for number in (1, 2, 3, 4)] == [0, 1, 2, 3]
    anew = VERDICTS[3].model_copy(update={"verdict": "refused", "evaluation": "later"})
    assert fold([*REGISTERED, Record(kind="refused", verdict=anew)]).settled(4, anew), "though it is a version"
    another = VERDICTS[0].subject.model_copy(update={"model": "models/m/other"})
    assert state.uses_before(1, another) == 0


def test_a_verdict_that_came_after_the_promotion_of_its_version_is_not_settled_by_it() -> None:
    anew = VERDICTS[1].model_copy(update={"evaluation": "later", "champion": VERDICTS[2].subject.model})
    records = [*REGISTERED, *CHAMPIONS, Record(kind="registered", version=1, verdict=anew)]
    assert not fold(records).settled(6, anew)
    assert not fold(records).settled(4, anew), "record 4 is the promotion itself"
    assert fold([*records, Record(kind="promoted", version=1, alias="champion")]).settled(6, anew)


def test_what_is_no_record_ends_with_its_name(store: ArtifactStore) -> None:
    store.objects.put_bytes("registry/m/ledger/000001.json", b"[]")
    with pytest.raises(LedgerError, match=r"000001\.json is not a ledger record"):
        Ledger(store, "m").records()


def test_what_is_not_said_is_not_so_and_what_cannot_change_is_not_tried_again() -> None:
    assert not REGISTERED[0].override and not VERDICTS[1].kept_out
    assert PromotionError.permanent and WrongEvaluationError.permanent
