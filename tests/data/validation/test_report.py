"""The report of a validation: small, safe, the same bytes each time, and every anomaly leads to its column."""

import json
import math
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatehouse.data.statistics.measurement import Measurement
from gatehouse.data.validation import report
from gatehouse.data.validation.anomalies import Anomaly, Findings
from gatehouse.data.validation.report import Judged, page
from gatehouse.data.validation.reports.shape import shape_of
from gatehouse.store.store import ArtifactStore
from tests.data.validation.conftest import Validate
from tests.reports.browser import Browser, launched

NASTY = "<script>document.title='broken'</script> \"quoted\" 'too' & ‮drawkcab עברית 🛫"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with launched(tmp_path_factory.mktemp("chromium")) as running:
        yield running


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
    return report.drawn(
        Judged(
            snapshot="snapshots/s/sha256-0123456789ab",
            as_of="2024-01-10T00:00:00+00:00",
            baseline="validations/s/sha256-0123456789ab" if baseline else "",
            anomalies=Findings(anomalies).sorted(),
            judged=500,
            not_judged=not_judged or [],
            measured=Measurement({"flights": columns}, {"flights": rebinned} if rebinned else {}, {"flights": 90_000}),
            before=Measurement({"flights": baseline}, {}, {"flights": 90_000}) if baseline else Measurement(),
        )
    )


def section(html: str, column: int) -> str:
    """The card of one column."""
    return html[html.index(f'id="c{column}"') :].split("</details>")[0]


def test_200_columns_with_a_baseline_and_what_is_wrong_with_them_stay_below_a_megabyte() -> None:
    columns = {f"a_rather_long_column_name_{at}": numeric() if at % 3 else textual() for at in range(200)}
    moved = {name: numeric(0.5) if "histogram" in found else textual() for name, found in columns.items()}
    anomalies = [anomaly(at, name, "warn" if at % 2 else "fail") for at, name in enumerate([*columns] * 5)]
    html = drawn(columns, anomalies, moved, moved)
    assert len(html.encode()) < 1_000_000
    assert html.count('<details class="card"') == 200
    assert html.count('class="other"') >= 100


def test_the_same_findings_give_the_same_bytes() -> None:
    pages = [drawn({"a": numeric(), "b": textual()}, [anomaly(0, "a")], {"a": numeric(1)}) for _ in range(2)]
    assert pages[0] == pages[1]


def test_anomalies_that_fail_come_first_and_then_by_table_and_column() -> None:
    found = [
        anomaly(0, "a", "warn"),
        anomaly(1, "b", table="weather"),
        anomaly(2, "b"),
        anomaly(3, "a"),
    ]
    html = drawn({"a": numeric(), "b": numeric()}, found)
    rows = re.findall(r'<tbody role="rowgroup" id="(a\d)".*?chip (\w+)".*?found"><bdi>(\d)', html, re.DOTALL)
    assert rows == [("a0", "fail", "4"), ("a1", "fail", "3"), ("a2", "fail", "2"), ("a3", "warn", "1")]


def test_an_anomaly_and_its_columns_lead_to_each_other() -> None:
    html = drawn({"a": numeric(), "b": numeric(), "c, d": numeric()}, [anomaly(0, "a, b"), anomaly(1, "c, d")])
    first, second = re.findall(r'id="a\d".*?</tbody>', html, re.DOTALL)
    assert re.findall(r'href="#(c\d)"', first) == ["c0", "c1"]
    assert re.findall(r'href="#(c\d)"', second) == ["c2"]
    assert [re.findall(r'href="#(a\d)"', section(html, at)) for at in range(3)] == [["a0"], ["a0"], ["a1"]]


def test_an_anomaly_of_a_column_that_is_not_there_leads_nowhere() -> None:
    html = drawn({"a": numeric()}, [anomaly(0, "gone"), anomaly(1, "a", table="no_table")])
    assert not re.findall(r'href="#c', html)


def test_examples_are_shown_as_they_stand_in_the_data() -> None:
    example = {"row": 1234567, "a": 1048.36058, "b": None, "c": True}
    html = drawn({"a": numeric()}, [anomaly(0, "a", rows=40, examples=(example,))])
    more = re.search(r'<tr role="row" class="more">.*?</tr></tbody></table>', html, re.DOTALL)
    assert more
    text = Text(more[0]).text
    assert "1 of 40 rows" in text
    assert all(value in text for value in ("1234567", "1048.36058", "–", "True"))


def test_nothing_of_the_data_is_markup_and_everything_is_there() -> None:
    columns = {NASTY: textual() | {"values": [[NASTY, 7], ["x" * 5000, 6]], "min": NASTY}, "b": numeric()}
    found = [anomaly(0, NASTY, expected=NASTY, observed=NASTY, examples=({"row": 1, NASTY: "y" * 5000},))]
    html = drawn(columns, found, columns, columns, [NASTY])
    text = Text(html).text
    assert Text(html).tags.count("script") == 1
    assert text.count(NASTY) > 8
    assert "x" * 81 not in html
    assert "y" * 201 not in html
    assert "(5,000 characters)" in text


@given(st.text(min_size=1, max_size=30), st.text(max_size=30))
def test_any_name_and_value_gives_a_page(name: str, value: str) -> None:
    columns = {name: textual() | {"values": [[value, 3]]}}
    html = drawn(columns, [anomaly(0, name, examples=({"row": 1, name: value},))], columns, columns)
    assert Text(html).tags.count("script") == 1
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


def test_values_are_listed_with_the_share_that_the_baseline_had_of_them() -> None:
    own = textual() | {"values": [["new", 60], ["old", 40]], "other": 0, "nulls": 0}
    before = textual() | {"values": [["old", 150], ["gone", 50]], "other": 0, "nulls": 0}
    again = own | {"values": [["old", 40], ["gone", 0]], "other": 60}
    rows = re.findall(r"<tr><th.*?</tr>", section(drawn({"a": own}, [], {"a": before}, {"a": again}), 0))
    listed = [re.sub("<[^>]*>", " ", row).split() for row in rows]
    assert ["new", "60", "60.0", "%", "none"] in listed
    assert ["old", "40", "40.0", "%", "75.0", "%"] in listed
    assert ["gone", "0", "0", "%", "25.0", "%"] in listed


def test_of_a_sensitive_column_the_card_says_so_and_shows_counts_only() -> None:
    card = section(drawn({"a": {"type": "string", "nulls": 4, "distinct": 9, "sensitive": True}}, []), 0)
    assert "Sensitive" in Text(card).text
    assert "<svg" not in card


def test_what_was_not_judged_is_listed_and_too_many_anomalies_are_counted() -> None:
    many = [anomaly(at, "a", examples=({"row": 1, "a": "x" * 200},) * 5) for at in range(1500)]
    rules = [f"flights.a: rule {at}, as there is no baseline" for at in range(9)]
    html = drawn({"a": numeric()}, many, not_judged=rules)
    text = Text(html).text
    assert "1500" not in text and "1,500" in text
    assert "1,300 more are in anomalies.json" in text
    assert [text.count(rule) for rule in rules] == [1] * 9 and "and 4 more, below" in text
    assert [Text(drawn({"a": numeric()}, [], not_judged=rules[:6])).text.count(rule) for rule in rules[:6]] == [1] * 6
    assert len(html.encode()) < 1_000_000


def test_the_verdict_counts_what_failed_and_names_the_first() -> None:
    found = [*(anomaly(at, "a") for at in range(5)), anomaly(9, "a", "warn")]
    text = Text(drawn({"a": numeric()}, found).split("</header>")[0]).text
    assert "The snapshot breaks its contract: 5 rules failed, 1 warned." in text
    assert text.split("1 warning")[0].count("expected at least 0") == 3
    assert "and 2 more, below" in text
    assert "with 1 warning." in drawn({"a": numeric()}, [anomaly(0, "a", "warn")])


def test_bars_have_the_area_of_their_rows() -> None:
    found = shape_of(numeric(), None, None)
    assert found is not None
    inside = sum((one.high - one.low) * one.height for one in found.own)
    assert inside == pytest.approx(1 - found.outside)


def test_a_snapshot_far_from_its_baseline_is_drawn_in_bars_of_its_own() -> None:
    own, baseline = numeric(100), numeric()
    far = numeric() | {"histogram": {**numeric()["histogram"], "counts": [0] * 30, "below": 0, "above": 90_000}}
    found = shape_of(own, far, baseline)
    assert found is not None
    assert found.own[0].low == pytest.approx(97)
    assert found.limits == (-3, pytest.approx(103))
    near = shape_of(own, baseline, baseline)
    assert near is not None
    assert near.own == near.baseline


@pytest.mark.parametrize("histogram", [None, {"edges": [1.0, 1.0], "counts": [3], "below": 0, "above": 0}])
def test_a_single_value_or_nothing_has_no_shape(histogram: dict[str, Any] | None) -> None:
    assert shape_of(numeric() | {"histogram": histogram}, None, None) is None


def test_the_report_of_a_real_validation(
    judge: Validate, store: ArtifactStore, browser: Browser, tmp_path: Path
) -> None:
    generator = np.random.default_rng(7)

    def tables(shift: float) -> dict[str, pa.Table]:
        times = pa.array([1_700_000_000_000_000 + 10**9 * at for at in range(3000)], pa.timestamp("us", tz="UTC"))
        column = {
            "delay": generator.normal(shift, 5, 3000),
            "place": generator.choice(["x", "y", NASTY], 3000),
            "late": generator.integers(0, 2, 3000).astype(bool),
            "at": times,
        }
        return {"t": pa.table(column)}

    contract = {
        "t": {
            "columns": {
                "delay": {"type": "double", "max": 15, "psi": 0.1},
                "place": {"type": "string", "allowed": ["x", "y"]},
                "late": {"type": "bool"},
                "at": {"type": "timestamp"},
            }
        }
    }
    first = judge(tables(0), contract)
    result = judge(tables(4), contract, first.validation)
    path = tmp_path / "report.html"
    path.write_text(page(store, result.validation))
    anomalies = json.loads(store.read_text(result.validation, "anomalies.json"))
    opened = browser.page(360, 800, phone=True).open(path)
    assert opened.console == []
    assert opened.requests == [path.as_uri()]
    assert opened.js("document.title") == "Validation against the contract"
    assert opened.js("document.querySelectorAll('.entries > tbody').length") == len(anomalies) == 3
    opened.js("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    assert opened.js("document.documentElement.scrollWidth") == 360
    assert opened.js("document.querySelectorAll('.card').length") == 4
    # delay over its baseline, and the time by itself
    assert opened.js("document.querySelectorAll('figure .own').length") == 2
    assert opened.js("document.querySelectorAll('figure path.other:not([d^=\"M6\"])').length") >= 1
    text = opened.js("document.body.innerText")
    assert NASTY in text


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


@pytest.mark.parametrize(
    ("values", "pictures"),
    [
        (pa.array([-1.7e308, 0.0, 1.7e308]), 0),
        (pa.array([0.0, 5e-324, 1e-323]), 0),
        (pa.array([0, 2**60, 2**62], pa.timestamp("us", "UTC")), 0),
        (pa.array([1, 2, 3], pa.timestamp("us", "UTC")), 1),
    ],
)
def test_values_that_no_axis_holds_are_reported_without_a_picture(
    judge: Validate, store: ArtifactStore, values: pa.Array, pictures: int
) -> None:
    kind = "timestamp" if pa.types.is_timestamp(values.type) else "double"
    contract = {"t": {"columns": {"a": {"type": kind}}}}
    first = judge({"t": pa.table({"a": values})}, contract)
    again = judge({"t": pa.table({"a": values})}, contract, baseline=first.validation)
    assert again.verdict == "pass"
    assert page(store, again.validation).count("<figure>") == pictures


def test_warnings_and_what_was_not_judged_are_told_in_the_head() -> None:
    unjudged = ["flights.a: psi, as there is no baseline"]
    html = drawn({"a": numeric()}, [anomaly(0, "a", "warn"), anomaly(1, "a")], not_judged=unjudged)
    head = Text(html.split("</header>")[0]).text
    assert "flights.a: min: expected at least 0, found 1 of 90,000 rows" in head.split("1 warning")[1]
    assert "flights.a: psi, as there is no baseline" in head.split("1 not checked")[1]
    assert "ask owner to correct it" in head


def test_an_infinity_is_seen_before_a_card_is_opened() -> None:
    html = drawn({"a": numeric(), "b": numeric() | {"not_finite": 0}}, [])
    assert [
        Text(each.split("</summary>")[0]).text.count("NaN or ∞") for each in html.split('<details class="card')[1:]
    ] == [
        1,
        0,
    ]


def test_texts_have_small_charts_of_their_most_frequent_values() -> None:
    columns = {"a": textual(), "b": textual() | {"values": [["x", 1], ["y", 1]]}, "c": textual() | {"sensitive": True}}
    columns["c"].pop("values")
    cards = drawn(columns, []).split('<details class="card')[1:]
    assert ['<svg class="spark"' in each.split("</summary>")[0] for each in cards] == [True, False, False]


@pytest.mark.parametrize(
    ("rules", "told"), [({"psi": {"value": 0.2}}, ""), ({"max": {"value": 9}}, "shown beside: no rule")]
)
def test_a_baseline_that_no_rule_looks_at_is_told_so(
    judge: Validate, store: ArtifactStore, rules: Any, told: str
) -> None:
    contract = {"t": {"columns": {"a": {"type": "int64"} | rules}}}
    first = judge({"t": pa.table({"a": [1, 2]})}, contract)
    text = Text(page(store, judge({"t": pa.table({"a": [1, 2]})}, contract, first.validation).validation)).text
    assert (first.validation[:30] in text) and ("no rule of the contract looks at it" in text) is bool(told)
