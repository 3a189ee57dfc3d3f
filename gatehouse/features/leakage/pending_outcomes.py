"""Holds `known/` against the labels: a raw table as it stood at a decision must not tell the outcome that comes later.

The replay can only find what the `known` queries take away. So the tables of the label are restored to the moments of
some decisions, as many with one label as with the other, and the label's query runs on them. Only the newest decision
in the restored tables is asked: what has happened since an earlier one may tell its label honestly, as a failure does
that came an hour later. The columns that a view does not read are replaced by values that say nothing of the row, so a
view is accused of what its own columns tell, and one wrong label among them proves nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from gatehouse.features.database import quoted
from gatehouse.features.definitions.repository import Repository
from gatehouse.features.leakage.label_columns import RawColumns
from gatehouse.features.leakage.replay import WINDOW
from gatehouse.features.leakage.told_labels import (
    ARRIVED,
    BEGINNING,
    HIGH,
    TOLD,
    ToldLabels,
    area,
    has_own_time,
    label_age,
)

SURE, DOUBTED = 0.9, 0.7
"""ROC AUC from which on columns are taken for the outcome, and from which on this is a question."""
_TOLD_BEFORE, _CONTRADICTED = 0.95, 0.99
"""ROC AUC from which on labels count as told between decision and arrival, and from which on by the outcome itself."""
_MOMENTS, _FEWEST = 12, 3
"""Decisions of either label that are looked at, and those without which nothing is said."""

_LEFT = (
    "features/known/{table}.sql leaves outcomes in that are not known yet: at {cut} {column}, which tells the label, "
    "was filled {row}, though that label is known from {arrives}. Write there that it is null until it is known: "
    "SELECT * REPLACE (CASE WHEN <time of the outcome> <= getvariable('as_of') THEN {name} END AS {name}) FROM "
    "source.{source}."
)
_REFUSED = "{view}: not checked, as "
_AT_DECISION = (
    "{view}: {columns} stood in the raw tables at the decision already. The label is computed from it, and it alone "
    "tells the higher from the lower label with ROC AUC {area:.2f} (1: always; 0.5: not at all). If {columns} was "
    "known at the decision, nothing is to be done. If not, write in features/known/{table}.sql that it is null until "
    "it is known: as it is, the check overlooks features that hold it."
)
_BEFORE_ARRIVAL = (
    "{view}: {columns} stood in the raw tables before the label is known by {arrives} in labels/{label}.sql, and "
    "tells it (ROC AUC {area:.2f}). If the outcome is known that early, nothing is to be done, or let the label arrive "
    "then. If not, write in features/known/{table}.sql that {columns} is null until it is known: as it is, the check "
    "overlooks features that hold it."
)


@dataclass
class _Asked:
    """What the restored tables told: of the newest decisions, and of earlier ones whose label was not known either."""

    newest: list[pa.Table] = field(default_factory=list)
    earlier: list[pa.Table] = field(default_factory=list)
    first: dict[str, str] = field(default_factory=dict)

    def add(self, rows: pa.Table, keys: Sequence[str], cut: datetime) -> None:
        """Rows of one moment, whose labels come later."""
        times = rows["decision_time"]
        newest = pc.equal(times, pc.max(times))
        told = rows.filter(newest)
        self.newest.append(told)
        self.earlier.append(rows.filter(pc.and_(pc.invert(newest), pc.is_valid(rows[TOLD]))))
        if not self.first and (named := rows.filter(pc.is_valid(rows[TOLD]))).num_rows:
            row = named.select([*keys, "label_time"]).slice(0, 1).to_pylist()[0]
            self.first = {**{name: str(value) for name, value in row.items()}, "cut": cut.isoformat()}

    def at_decision(self) -> float:
        """How far the tables told the labels of newest decisions; 0.5 if there are too few of either label."""
        return _area_if_enough(self.newest, by_moment=False)

    def before_arrival(self) -> float:
        """How far they told the labels of earlier decisions, if both labels occur at several moments; else 0.5."""
        return _area_if_enough(self.earlier, by_moment=True)


def told_early(
    labels: ToldLabels, repository: Repository, reading: Mapping[str, RawColumns], shown: bool = True
) -> tuple[dict[str, str], dict[str, str]]:
    """Find views whose columns of the label stand in restored tables too early.

    Args:
        labels: The labels that restored tables tell.
        repository: The feature definitions.
        reading: By view, the columns of the label that it reads, of tables with a `known` query.
        shown: Whether keys of a row may be shown.

    Returns:
        By view, why it is not checked: the outcome stood there at its decision, or before a time of its own at which it
        arrives. And by view, what a person has to judge: it stood there before a time at which every label arrives, or
        tells the label partly, as a column does that was known at the decision.
    """
    asked = _ask(labels, {columns for columns in reading.values() if columns}, repository)
    # After a fixed time, a label arrives later than the outcome: "did it fail within a day" is known at a failure.
    arrives_by_row = has_own_time(labels.arrivals)
    refused, doubted = dict[str, str](), dict[str, str]()
    for view, columns in reading.items():
        if columns not in asked:
            continue
        found = asked[columns]
        told, before = found.at_decision(), found.before_arrival()
        if told < DOUBTED and before < _TOLD_BEFORE:
            continue
        told = min(told, labels.area_alone(columns))
        alone = {column: labels.area_alone(frozenset([column])) for column in sorted(columns)}
        named = [column for column in alone if alone[column] >= DOUBTED] or [*alone]
        if told >= SURE or (before >= _CONTRADICTED and arrives_by_row):
            refused[view] = _refusal(view, max(alone, key=lambda one: alone[one]), found.first, shown)
        elif told >= DOUBTED:
            doubted[view] = _AT_DECISION.format(**_words(view, named, repository), area=told)
        elif before >= _TOLD_BEFORE:
            doubted[view] = _BEFORE_ARRIVAL.format(**_words(view, sorted(columns), repository), area=before)
    return refused, doubted


def _ask(labels: ToldLabels, sets: Iterable[RawColumns], repository: Repository) -> dict[RawColumns, _Asked]:
    asked = {columns: _Asked() for columns in sets}
    pending = labels.rows.filter(pc.greater(labels.rows["label_time"], labels.rows["decision_time"]))
    age = label_age(pending)
    for cut in _moments(pending) if asked else ():
        since = cut - WINDOW - age - repository.history if repository.history is not None else BEGINNING
        labels.restore(cut, since)
        moment = pa.scalar(cut, pa.timestamp("us", "UTC"))
        for columns, found in asked.items():
            rows = labels.told_by(columns)
            # With a horizon, a label arrives before it counts.
            late = pc.fill_null(pc.greater(rows[ARRIVED], moment), True)
            later = pc.and_(pc.greater(rows["label_time"], moment), pc.less_equal(rows["decision_time"], moment))
            if (rows := rows.filter(pc.and_(late, later))).num_rows:
                found.add(rows, [*repository.entity_keys, "decision_time"], cut)
    return asked


def _moments(pending: pa.Table) -> list[datetime]:
    """Decisions with either label, evenly by time."""
    found = set[datetime]()
    for high in (True, False):
        times = pc.unique(pending.filter(pc.equal(pending[HIGH], high))["decision_time"]).sort()
        places = (
            sorted({int((number + 0.5) * len(times) / _MOMENTS) for number in range(_MOMENTS)}) if len(times) else []
        )
        found |= {times[place].as_py() for place in places}
    return sorted(found)


def _area_if_enough(tables: Sequence[pa.Table], by_moment: bool) -> float:
    if not tables:
        return 0.5
    rows = pa.concat_tables(tables)
    for high in (True, False):
        counts = [pc.sum(pc.equal(one[HIGH], high)).as_py() or 0 for one in tables]
        if (sum(count > 0 for count in counts) if by_moment else sum(counts)) < _FEWEST:
            return 0.5
    return area(rows)


def _words(view: str, columns: Sequence[tuple[str, str]], repository: Repository) -> dict[str, Any]:
    label = repository.label
    named = " and ".join(f"{table}.{name}" for table, name in columns)
    return {
        "view": view,
        "columns": named,
        "table": columns[0][0],
        "arrives": label.arrives.column,
        "label": label.name,
    }


def _refusal(view: str, column: tuple[str, str], first: Mapping[str, str], shown: bool) -> str:
    table, name = column
    keys = {key: value for key, value in first.items() if key not in ("cut", "label_time")}
    row = "in the row of " + ", ".join(f"{key} {value}" for key, value in keys.items()) if shown else "in some rows"
    left = _LEFT.format(
        table=table,
        cut=first["cut"],
        column=f"{table}.{name}",
        row=row,
        arrives=first["label_time"],
        name=quoted(name),
        source=quoted(table),
    )
    return _REFUSED.format(view=view) + left
