"""The report of a validation: small, safe, the same bytes each time, and every anomaly leads to its column."""

import math
import re
from html.parser import HTMLParser
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from gatehouse.data.statistics.stage import Measurement
from gatehouse.data.validation import report
from gatehouse.data.validation.anomalies import Anomaly, Findings
from gatehouse.data.validation.report import page
from gatehouse.store.store import ArtifactStore
from tests.data.validation.conftest import Validate

NASTY = "<script>document.title='broken'</script> \"quoted\" 'too' & ‮drawkcab עברית 🛫"


class Text(HTMLParser):
    """The text and the tags of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def numeric(shift: float = 0.0, bars: int = 30) -> dict[str, Any]:
    """Statistics of a numeric column as they are measured."""
    edges = [round(-3 + shift + 6 * at / bars, 3) for at in range(bars + 1)]
    counts = [round(10_000 * math.exp(-((at - bars / 2) ** 2) / 40)) for at in range(bars)]
    rows = sum(counts)
    return {
        "type": "double",
        "nulls": 123,
        "distinct": 4321,
        "exact": False,
        "not_finite": 2,
        "zeros": 17,
        "edges": edges[3:27:3],
        "counts": [(rows - 17) // 9] * 8 + [rows - 17 - 8 * ((rows - 17) // 9)],
        "min": edges[0],
        "max": edges[-1],
        "mean": 0.123456 + shift,
        "std": 1.23456,
        "median": 0.1,
        "quantiles": {"0.05": -1.9, "0.5": 0.1, "0.95": 2.1},
        "histogram": {"edges": edges, "counts": counts, "below": 3, "above": 4},
    }


def textual(values: int = 50) -> dict[str, Any]:
    """Statistics of a text column."""
    return {
        "type": "string",
        "nulls": 5,
        "distinct": 5000,
        "exact": True,
        "min": "aaa",
        "max": "zzz",
        "min_length": 3,
        "max_length": 12,
        "mean_length": 6.789,
        "values": [[f"some value {at}", 1000 - at] for at in range(values)],
        "other": 777,
    }


def anomaly(at: int, column: str, severity: str = "fail", table: str = "flights", **more: Any) -> Anomaly:
    examples = tuple({"row": row, "id": f"key-{row}", column: -99.5} for row in range(5))
    body: dict[str, Any] = {"expected": "at least 0", "observed": f"{at + 1} of 90,000 rows that break it"}
    return Anomaly(table, "min", column, severity, "owner", **(body | {"rows": at + 1, "examples": examples} | more))


def drawn(
    columns: dict[str, dict[str, Any]],
    anomalies: list[Anomaly],
    baseline: dict[str, dict[str, Any]] | None = None,
    rebinned: dict[str, dict[str, Any]] | None = None,
    not_judged: list[str] | None = None,
) -> str:
    before = Measurement({"flights": baseline}, {}, {"flights": 90_000}) if baseline else None
    return report.drawn(
        {"snapshot": "snapshots/s/sha256-0123456789ab", "as_of": "2024-01-10T00:00:00+00:00"},
        Findings(anomalies).sorted(),
        {"judged": 500, "not_judged": not_judged or []},
        Measurement({"flights": columns}, {"flights": rebinned} if rebinned else {}, {"flights": 90_000}),
        "validations/s/sha256-0123456789ab" if baseline else "",
        before,
    )


def section(html: str, column: int) -> str:
    """The card of one column."""
    return html[html.index(f'id="c{column}"') :].split("</details>")[0]


def test_200_columns_with_a_baseline_and_what_is_wrong_with_them_stay_below_a_megabyte() -> None:
    columns = {f"a_rather_long_column_name_{at}": numeric() if at % 3 else textual() for at in range(200)}
    moved = {name: numeric(0.5) if "histogram" in column else textual() for name, column in columns.items()}
    anomalies = [anomaly(at, name, "warn" if at % 2 else "fail") for at, name in enumerate([*columns] * 5)]
    html = drawn(columns, anomalies, moved, moved)
    assert len(html.encode()) < 1_000_000
    assert html.count('<details class="card"') == 200
    assert html.count('class="other"') >= 100


def test_anomalies_that_fail_come_first_and_then_by_table_and_column() -> None:
    anomalies = [anomaly(0, "a", "warn"), anomaly(1, "b", table="weather"), anomaly(2, "b"), anomaly(3, "a")]
    html = drawn({"a": numeric(), "b": numeric()}, anomalies)
    rows = re.findall(r'<tbody id="(a\d)".*?chip (\w+)".*?found"><bdi>(\d)', html, re.DOTALL)
    assert rows == [("a0", "fail", "4"), ("a1", "fail", "3"), ("a2", "fail", "2"), ("a3", "warn", "1")]


def test_nothing_of_the_data_is_markup_and_everything_is_there() -> None:
    columns = {NASTY: textual() | {"values": [[NASTY, 7], ["x" * 5000, 6]], "min": NASTY}, "b": numeric()}
    anomalies = [anomaly(0, NASTY, expected=NASTY, observed=NASTY, examples=({"row": 1, NASTY: "y" * 5000},))]
    html = drawn(columns, anomalies, columns, columns, [NASTY])
    text = Text(html).text
    assert "script" not in Text(html).tags
    assert text.count(NASTY) > 8
    assert "x" * 81 not in html
    assert "y" * 201 not in html
    assert "(5,000 characters)" in text


@given(st.text(min_size=1, max_size=30), st.text(max_size=30))
def test_any_name_and_value_gives_a_page(name: str, value: str) -> None:
    columns = {name: textual() | {"values": [[value, 3]]}}
    html = drawn(columns, [anomaly(0, name, examples=({"row": 1, name: value},))], columns, columns)
    assert "script" not in Text(html).tags
    html.encode()


def test_a_card_sets_the_baseline_beside_each_statistic_and_over_the_bars() -> None:
    html = drawn({"a": numeric()}, [], {"a": numeric(0.5) | {"nulls": 9000}}, {"a": numeric(0.5)})
    card = section(html, 0)
    text = Text(card).text
    assert "this snapshotbaseline" in text.replace("\n", "")
    assert "≈ 4,321" in text
    assert "0.1235" in text and "0.6235" in text
    assert 'class="own"' in card and 'class="other"' in card
    alone = section(drawn({"a": numeric()}, []), 0)
    assert 'class="own"' in alone and 'class="other"' not in alone
    assert "baseline" not in Text(alone).text


def test_columns_stand_as_in_the_table_and_show_no_value_that_is_sensitive_now(
    judge: Validate, store: ArtifactStore
) -> None:
    tables = {"t": pa.table({"z": ["top-secret"] * 9, "a": [1] * 9})}
    columns: dict[str, Any] = {"z": {"type": "string"}, "a": {"type": "int64"}}
    before = judge(tables, {"t": {"columns": columns}})
    assert "top-secret" in page(store, before.validation)
    columns["z"]["sensitive"] = True
    html = page(store, judge(tables, {"t": {"columns": columns}}, before.validation).validation)
    assert "top-secret" not in html
    assert re.findall(r"<h3><bdi>(\w)</bdi></h3>", html) == ["z", "a"]
