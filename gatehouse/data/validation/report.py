"""The page about a validation: verdict, anomalies, what was not judged, and a card of every column.

An anomaly expands to its example rows and links to the card of its column, which links back. All of it is one file
that needs no server; the filter needs the page's own script, everything else does not.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gatehouse.data.snapshot.delivered import delivered_tables
from gatehouse.data.statistics import Statistics
from gatehouse.data.statistics.measurement import without_values
from gatehouse.data.statistics.measurement import Measurement, measurement, statistics_of
from gatehouse.data.validation.anomalies import Anomaly
from gatehouse.data.validation.contract import CONTRACT_FILE
from gatehouse.data.validation.movement import MOVEMENTS
from gatehouse.data.validation.reports.column_card import Column, column_card
from gatehouse.data.validation.reports.contract_line import contract_line
from gatehouse.reports.elements import Entry, Marked, cell, isolated, link, shortened, sign, table
from gatehouse.reports.format import Html, moment
from gatehouse.reports.page import TOLD, Report, Verdict
from gatehouse.runtime.counting import counted
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore

ByColumn = Mapping[str, Mapping[str, Statistics]]
Anchors = Mapping[tuple[str, str], str]
ByPlace = Mapping[tuple[str, str], Sequence[tuple[str, Anomaly]]]

# What keeps the page below a megabyte however much is wrong; `anomalies.json` holds everything.
_ANOMALIES = 200
_EXAMPLES_BYTES = 60_000
_REASONS = 3
_SEVERITIES = ("fail", "warn")


@dataclass(frozen=True)
class Judged:
    """What the page shows.

    Attributes:
        snapshot: Short reference of the snapshot.
        as_of: The snapshot's time.
        baseline: Short reference of the baseline; empty for none.
        anomalies: Those that fail first, then by table, column and rule.
        judged: How many rules were judged.
        not_judged: What could not be judged, and why.
        measured: Statistics of the snapshot, its columns in the order of the source.
        before: Statistics of the baseline.
        contract: The contract as it was published: defaults left out.
        delivery: What the guards said as the snapshot was taken.
        times: How the source writes times that are not in ISO 8601, by table and column.
    """

    snapshot: str
    as_of: str
    baseline: str
    anomalies: Sequence[Anomaly]
    judged: int
    not_judged: Sequence[str]
    measured: Measurement
    before: Measurement = field(default_factory=Measurement)
    contract: Mapping[str, Any] = field(default_factory=lambda: {"tables": {}})
    delivery: Sequence[str] = ()
    times: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def page(store: ArtifactStore, reference: str) -> str:
    """The page of a validation, as HTML.

    Args:
        store: Where the artifact is, and what it was derived from.
        reference: Of the validation.
    """
    inputs = store.manifest(reference).derived_from
    snapshot, baseline = store.manifest(inputs["snapshot"]), inputs.get("baseline", "")
    verdict = store.read_json(reference, "verdict.json")
    measured = measurement(store, inputs["statistics"])
    delivered = delivered_tables(store, snapshot.reference)
    statistics = {
        name: {
            column: measured.statistics[name][column] for column in table.columns if column in measured.statistics[name]
        }
        for name, table in delivered.items()
        if name in measured.statistics
    }
    before = measurement(store, statistics_of(store, baseline))
    # A column may be sensitive now that was not when the baseline was measured.
    sensitive = {
        name: [column for column, found in columns.items() if found.get("sensitive")]
        for name, columns in statistics.items()
    }
    return drawn(
        Judged(
            snapshot=snapshot.reference.short,
            as_of=snapshot.details["as_of"],
            baseline=Reference.parse(baseline).short if baseline else "",
            anomalies=[Anomaly.from_json(one) for one in store.read_json(reference, "anomalies.json")],
            judged=verdict["judged"],
            not_judged=verdict["not_judged"],
            measured=replace(measured, statistics=statistics),
            before=replace(before, statistics=without_values(before.statistics, sensitive)),
            contract=json.loads(store.read_text(inputs["contract"], CONTRACT_FILE)),
            delivery=verdict.get("delivery", ()),
            times={name: table.times for name, table in delivered.items()},
        )
    )


def drawn(found: Judged) -> str:
    """The page of what was judged, as HTML."""
    anomalies, statistics = found.anomalies, found.measured.statistics
    anchors = _anchors(statistics)
    report = Report("Validation against the contract", "", _verdict(found))
    report.facts({"snapshot": found.snapshot, "as of": moment(found.as_of), "baseline": _baseline(found)})
    report.tiles(_numbers(found))
    report.filters({"severity": _SEVERITIES, "table": sorted({*statistics, *(one.table for one in anomalies)})})
    _add_anomalies(report, found, anchors)
    if len(found.not_judged) > TOLD + 1:
        text = "A rule that could not be judged is not a rule that was kept. The first ones stand at the top."
        report.section("Not judged", text, f"{len(found.not_judged):,}")
        report.table(["what"], [[shortened(line)] for line in found.not_judged[TOLD:]])
    by_column = _by_column(anomalies, anchors)
    for name in statistics:
        _add_table(report, name, found, anchors, by_column)
    return report.html()


def _add_table(report: Report, name: str, found: Judged, anchors: Anchors, anomalies: ByPlace) -> None:
    """One table: how many rows and rules, and the cards of its columns."""
    columns, rows = found.measured.statistics[name], found.measured.rows[name]
    failed = sum(one.table == name and one.severity == "fail" for one in found.anomalies)
    text = f"{rows:,} rows, {len(columns):,} columns. Open a column for its statistics."
    report.section(f"Table {shortened(name, 120)}", text, f"{failed:,} failed" if failed else "")
    before, again = (side.get(name, {}) for side in (found.before.statistics, found.measured.rebinned))
    shown = [
        Column(
            table=name,
            name=column,
            own=own,
            rows=rows,
            baseline=before.get(column),
            baseline_rows=found.before.rows.get(name, 0),
            rebinned=again.get(column),
            anomalies=anomalies.get((name, column), ()),
            form=found.times.get(name, {}).get(column, ""),
        )
        for column, own in columns.items()
    ]
    report.cards([column_card(column, anchors[name, column.name]) for column in shown])


def _anchors(statistics: ByColumn) -> Anchors:
    """What links to the card of each column name: its number, as a name may hold any character."""
    places = [(name, column) for name, columns in statistics.items() for column in columns]
    return {place: f"c{index}" for index, place in enumerate(places)}


def _columns(anomaly: Anomaly, anchors: Anchors) -> list[str]:
    """The columns with cards that an anomaly names: one, or several joined by a comma."""
    if (anomaly.table, anomaly.column) in anchors:
        return [anomaly.column]
    return [name for name in anomaly.column.split(", ") if (anomaly.table, name) in anchors]


def _by_column(anomalies: Sequence[Anomaly], anchors: Anchors) -> dict[tuple[str, str], list[tuple[str, Anomaly]]]:
    """Anchor and anomaly of those that are on the page, by table and column."""
    found: dict[tuple[str, str], list[tuple[str, Anomaly]]] = {}
    for index, one in enumerate(anomalies[:_ANOMALIES]):
        for column in _columns(one, anchors):
            found.setdefault((one.table, column), []).append((f"a{index}", one))
    return found


def _verdict(found: Judged) -> Verdict:
    failed, warned = ([one for one in found.anomalies if one.severity == word] for word in _SEVERITIES)
    unchecked = tuple(map(shortened, found.not_judged))
    warnings = tuple(shortened(text, 160) for text in (*found.delivery, *map(str, warned)))
    with_warnings = f", with {counted(len(warnings), 'warning')}" if warnings else ""
    if not failed:
        text = f"The snapshot keeps its contract{with_warnings}."
        return Verdict("pass", text, warnings=warnings, unchecked=unchecked)
    reasons = [shortened(str(one), 160) for one in failed[:_REASONS]]
    if len(failed) > _REASONS:
        reasons.append(f"and {len(failed) - _REASONS:,} more, below")
    text = f"The snapshot breaks its contract: {counted(len(failed), 'rule')} failed, {len(warned):,} warned."
    owners = ", ".join(sorted({one.owner for one in failed if one.owner}))
    todo = (
        f"ask {shortened(owners) or 'whoever delivers the data'} to correct it; where the data is right, copy the rule "
        "that stands below an anomaly into the contract."
    )
    return Verdict("fail", text, tuple(reasons), warnings, unchecked, todo)


def _baseline(found: Judged) -> str:
    """The baseline, and whether any rule looks at it."""
    if not found.baseline:
        return "none"
    compares = any(key in MOVEMENTS or key.endswith("_rows_ratio") for key in _keys(found.contract))
    return found.baseline if compares else f"{found.baseline}, shown beside: no rule of the contract looks at it"


def _keys(body: Any) -> Iterator[str]:
    """Every key of a contract, at any depth."""
    for key, value in body.items() if isinstance(body, dict) else ():
        yield key
        yield from _keys(value)


def _numbers(found: Judged) -> dict[str, Any]:
    failed = sum(one.severity == "fail" for one in found.anomalies)
    warned = len(found.anomalies) - failed
    return {
        "failed": Marked(failed, "bad" if failed else ""),
        "warned": Marked(warned, "warn" if warned else ""),
        "rules judged": found.judged,
        "not judged": len(found.not_judged),
        "rows": sum(found.measured.rows.values()),
        "columns": sum(len(columns) for columns in found.measured.statistics.values()),
        "tables": len(found.measured.statistics),
    }


def _add_anomalies(report: Report, found: Judged, anchors: Anchors) -> None:
    anomalies = found.anomalies
    if not anomalies:
        report.section("Anomalies", "None: every rule that was judged is kept.", "0")
        return
    hidden = len(anomalies) - _ANOMALIES
    text = "Those that fail the contract first, each with its rule in the contract and one that this data keeps." + (
        f" {hidden:,} more are in anomalies.json of this artifact." if hidden > 0 else ""
    )
    report.section("Anomalies", text, f"{len(anomalies):,}")
    room, entries = _EXAMPLES_BYTES, []
    for index, one in enumerate(anomalies[:_ANOMALIES]):
        more = _examples(one) if room > 0 else _left_out(one)
        room -= len(more[1]) if more else 0
        entries.append(_entry(found, one, index, more, anchors))
    report.entries(["severity", "where", "rule", "expected", "found", "rows", "owner"], entries)


def _entry(found: Judged, one: Anomaly, index: int, more: tuple[str, Html] | None, anchors: Anchors) -> Entry:
    linked = _columns(one, anchors)
    if linked:
        where = f"{isolated(one.table)}.{', '.join(link(anchors[one.table, name], shortened(name)) for name in linked)}"
    else:
        where = isolated(shortened(f"{one.table}.{one.column}" if one.column else one.table))
    texts = [isolated(shortened(text)) for text in (one.rule, one.expected, one.observed)]
    cells = [sign(one.severity), Html(f"<div>{where}</div>"), *texts, one.rows, one.owner]
    statistics = found.measured.statistics.get(one.table, {}).get(one.column, {})
    line = contract_line(found.contract, one, found.measured.rows.get(one.table, 0), statistics)
    facets = {"severity": [one.severity], "table": [one.table]}
    return Entry(cells, f"a{index}", facets, more, line.html() if line else None)


def _examples(one: Anomaly) -> tuple[str, Html] | None:
    if not one.examples:
        return None
    shown = len(one.examples)
    title = f"{shown:,} of {one.rows:,} rows" if one.rows and one.rows > shown else counted(shown, "example row")
    headers = list(one.examples[0])
    rows = [[_raw(example.get(header)) for header in headers] for example in one.examples]
    label = f"Example rows of {one.rule} in {one.table}"
    return title, Html(f'<p class="note">Rows are numbered from 0.</p>{table(headers, rows, label=label)}')


def _left_out(one: Anomaly) -> tuple[str, Html] | None:
    if not one.examples:
        return None
    return "Example rows", Html("<p>They are in anomalies.json of this artifact: the page has no room for more.</p>")


def _raw(value: Any) -> Html:
    """A value as it stands in the data, without the rounding and separators of the other tables."""
    return cell("–" if value is None else str(value), 200)
