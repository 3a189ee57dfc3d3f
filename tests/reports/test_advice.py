"""The advice to a candidate that was refused: for every family of rules, once each, and none that was not shown."""

import pytest

from gatehouse.evaluation import gate
from gatehouse.evaluation.gate import Evidence, Seen
from gatehouse.evaluation.rules.unseen import Unseen, unseen
from gatehouse.reports import advice
from gatehouse.reports.advice import advised
from tests.evaluation.test_gate import BASELINE, GOOD, MODEL

FEW = "test rows: expected at least 100 test rows, found 50"
BELOW_BASELINE = "baseline brier: expected below the baseline's 0.2, found nan"
MEMORY = "memory: expected at most 5 MB, found 9"


@pytest.mark.parametrize(
    ("seen", "told"),
    [
        (Seen({"candidate": 0}, 110, 110, unread=("champion: splits/a is gone.",)), "gone. Bring back what is named"),
        (Seen({"candidate": 100}, 110, 10), "10 are left. Test on rows that neither model was trained on"),
    ],
)
def test_what_is_advised_on_unseen_rows_fits_what_was_found(seen: Seen, told: str) -> None:
    (rule,) = unseen.rules(Unseen(least_unseen_rows=100), Evidence(MODEL, GOOD, BASELINE, None, {}, False, seen=seen))
    (found,) = advised([str(rule)])
    assert told in found


def test_every_family_of_rules_has_advice_which_knows_whether_it_looks_at_test_rows() -> None:
    few = dict.fromkeys(advice._TOO_FEW, True)
    known = few | dict.fromkeys(advice._ON_TEST_ROWS, True) | dict.fromkeys(advice._OTHERS, False)
    declared = {each.names: each.of_rows or each.names in few for each in gate.families()}
    assert known == declared
    assert set(advice._TOO_FEW) == {(gate.ENOUGH,), (gate.UNSEEN,)}


@pytest.mark.parametrize(
    ("reasons", "told"),
    [
        (["slice a: low", "slice b: low"], ["slice a: low", "slice b: low. Bring more rows of these slices"]),
        ([BELOW_BASELINE], [f"{BELOW_BASELINE}. It was not shown to be better than a linear model"]),
        ([BELOW_BASELINE, FEW], [BELOW_BASELINE, f"{FEW}. Bring more rows, or give the test part"]),
        ([FEW, MEMORY], [f"{FEW}. Bring more rows,", f"{MEMORY}. Train a smaller model"]),
        (["warnings: found it is checked."], ["warnings: found it is checked. The report of that check"]),
        (["leakage alarm roc_auc: high"], ["leakage alarm roc_auc: high. The model may have been told"]),
        (["leakage: expected pass"], ["leakage: expected pass. The report of that check"]),
        (
            ["a reason that is no rule.", "championship: no rule"],
            ["a reason that is no rule.", "championship: no rule"],
        ),
    ],
)
def test_each_family_is_advised_once_and_only_on_what_was_shown(reasons: list[str], told: list[str]) -> None:
    found = advised(reasons)
    assert [text[: len(start)] for text, start in zip(found, told, strict=True)] == told
    assert [text for text, reason in zip(found, reasons, strict=True) if not text.startswith(reason.rstrip("."))] == []
    assert [text for text, start in zip(found, told, strict=True) if start in reasons and text != start] == []
