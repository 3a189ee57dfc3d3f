"""The advice to a candidate that was refused: for every family of rules, once each."""

import pytest

from gatehouse.reports.advice import ADVICE, advised

BELOW_BASELINE = "baseline brier: expected below the baseline's 0.2, found nan"


@pytest.mark.parametrize(
    ("reasons", "kinds"),
    [
        (["slice a: low", "slice b: low"], ["", "slice"]),
        ([BELOW_BASELINE], ["baseline"]),
        (["memory: expected at most 5 MB, found 9", "latency: high"], ["", "cost"]),
        (["leakage alarm roc_auc: high"], ["leakage alarm"]),
        (["leakage: expected pass."], ["check"]),
        (["a reason that is no rule.", "championship: no rule"], ["", ""]),
    ],
)
def test_each_family_is_advised_once(reasons: list[str], kinds: list[str]) -> None:
    texts = [
        f"{reason.rstrip('.')}. {ADVICE[kind]}" if kind else reason for reason, kind in zip(reasons, kinds, strict=True)
    ]
    assert advised(reasons) == texts
