"""The section of fairness: only groups without any judged rate are pale, and rates that cannot be judged."""

import re

from gatehouse.evaluation.reports.fairness import add_fairness
from gatehouse.reports.page import Report

RATES = {"selection_rate": (0.5, 0.4, 0.6), "true_positive_rate": (0.5, 0.4, 0.6)}


def test_a_group_of_which_some_rates_are_judged_is_not_pale() -> None:
    groups = [
        {"name": name, "rows": 900, "lacking": lacking, "rates": {"candidate": RATES}, "unknown": unknown}
        for name, lacking, unknown in (
            ("g=whole", "", []),
            ("g=partly", "the false positive rate, of few rows", ["false_positive_rate"]),
            ("g=none", "9 rows", []),
        )
    ]
    page = Report("x")
    add_fairness(page, [{"column": "g", "groups": groups, "measures": {"candidate": {}}}], {})
    rows = re.findall(r"<tr[^>]*>.*?</tr>", page.html(), re.S)
    pale = {name: "soft" in row for row in rows for name in ("g=whole", "g=partly", "g=none") if name in row}
    assert pale == {"g=whole": False, "g=partly": False, "g=none": True}
