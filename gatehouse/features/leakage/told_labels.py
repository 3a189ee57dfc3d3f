"""The labels that raw tables tell, as they stood at a moment, and how far some of their columns tell them alone.

The label is computed again with every other column of the label replaced by values that have nothing to do with the
row: of five such values, spread over the column, the mean of the five labels is what the kept columns tell. An outcome
tells the label so. A column that was known at the decision, as the amount in `refund > 0.5 * amount`, tells it badly.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import cached_property

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gatehouse.features.computing.compute import go_back, run_macros, stage_tables
from gatehouse.features.computing.labels import outcomes_in
from gatehouse.features.database import quoted, set_time
from gatehouse.features.definitions.repository import Repository, tables_of
from gatehouse.features.leakage.label_columns import RawColumns, columns_of, label_columns
from gatehouse.metrics.classification import roc_auc

BEGINNING = datetime(1, 1, 1, tzinfo=UTC)
HIGH, TOLD, ARRIVED, ROW = "__high", "__told", "__arrived", "__row"
_SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)
_FEW_LABELS = 20
_SAME = 0.1


class ToldLabels:
    """The label's query on raw tables that are restored to a moment, with columns replaced.

    Attributes:
        columns: The columns from which the label is computed.
        rows: The keys, times and label of the training set, with a column `HIGH`: whether the label is the higher one
            of the two commonest, or of many labels in the highest third and not in the lowest; null for other rows.
            `ROW` is the row's number in the training set.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, repository: Repository, training_set: pa.Table) -> None:
        """The raw tables are in the schema `source` of the connection."""
        self._connection, self._repository = connection, repository
        self._tables = tables_of(repository, [repository.entity_rows])
        self._areas: dict[RawColumns, float] = {}
        self._spread: RawColumns = frozenset()
        self._keys = [*repository.entity_keys, "decision_time"]
        self.rows = _with_opposite_labels(training_set.select([*self._keys, "label", "label_time"]))
        found = label_columns(connection, repository)
        self.columns = self._by_trial() if found is None else found

    def restore(self, cut: datetime | None, since: datetime = BEGINNING) -> None:
        """Keep the label's tables as they stood at the cut, with rows since a time; None for the tables as they are."""
        run_macros(self._connection, self._repository)
        self._connection.execute("DROP SCHEMA IF EXISTS restored CASCADE; CREATE SCHEMA restored")
        newest = pc.max(self.rows["label_time"]).as_py()
        set_time(self._connection, "as_of", cut or newest)
        set_time(self._connection, "since", since)
        for table in self._tables:
            if cut:
                go_back(self._connection, self._repository, table, "restored")
            else:
                name = quoted(table)
                self._connection.execute(f"CREATE VIEW restored.{name} AS FROM source.{name}")

    def untouched(self) -> list[str]:
        """Tables of the label's columns from which `known` takes nothing away at the first of several decisions."""
        first, last = (each(self.rows["decision_time"]).as_py() for each in (pc.min, pc.max))
        if first == last:
            return []
        self.restore(first)
        tables = sorted({table for table, _ in self.columns} & set(self._repository.known) & set(self._tables))
        return [table for table in tables if self._is_whole(quoted(table))]

    def _is_whole(self, table: str) -> bool:
        source, restored = (self._connection.sql(f"SELECT * FROM {of}.{table}") for of in ("source", "restored"))
        if source.columns != restored.columns or len(source) != len(restored):
            return False
        return not source.except_(restored).limit(1).fetchall()

    def told_by(self, kept: RawColumns) -> pa.Table:
        """The rows that the restored tables have, with `TOLD`, the mean label by the kept columns, and `ARRIVED`.

        `TOLD` is null where there is no label.
        """
        return self._told(self.columns - kept)

    @cached_property
    def arrivals(self) -> pa.Table:
        """The rows with the time `ARRIVED` at which their label arrives, before or after its decision."""
        self.restore(None)
        return self.told_by(self.columns)

    def area_alone(self, kept: RawColumns) -> float:
        """ROC AUC with which columns of the label alone tell the higher from the lower label, in the end."""
        if kept == self.columns:
            return 1.0
        if kept not in self._areas:
            self.restore(None)
            self._areas[kept] = area(self.told_by(kept))
        return self._areas[kept]

    def _told(self, replaced: RawColumns) -> pa.Table:
        self._measure(replaced)
        tables = [self._with_values(replaced, draw) for draw in range(len(_SHARES) if replaced else 1)]
        self._connection.register("__labels", pa.concat_tables(tables))
        self._connection.register("__rows", self.rows)
        keys = ", ".join(map(quoted, self._keys))
        match = " AND ".join(self._matches())
        order = ", ".join(f"r.{quoted(name)}" for name in reversed(self._keys))
        found = self._connection.sql(
            f"SELECT r.*, t.{TOLD}, t.{ARRIVED} FROM __rows AS r JOIN (SELECT {keys}, round(avg(label), 9) AS "
            f"{TOLD}, max(arrived) AS {ARRIVED} FROM __labels GROUP BY ALL) AS t ON {match} ORDER BY {order}"
        ).to_arrow_table()
        self._connection.unregister("__labels")
        self._connection.unregister("__rows")
        return found

    def _matches(self) -> list[str]:
        """The conditions on which a label belongs to a row. A key may be unknown yet, as the aircraft of a flight."""
        missing = ", ".join(f"coalesce(bool_or({quoted(name)} IS NULL), false)" for name in self._keys)
        lacking = self._connection.sql(f"SELECT {missing} FROM __labels").fetchall()[0]
        equal = {name: f"r.{quoted(name)} IS NOT DISTINCT FROM t.{quoted(name)}" for name in self._keys}
        if sum(not each for each in lacking) < min(2, len(self._keys)):
            return list(equal.values())
        return [
            f"(t.{quoted(name)} IS NULL OR {equal[name]})" if may_lack else equal[name]
            for name, may_lack in zip(self._keys, lacking, strict=True)
        ]

    def _with_values(self, replaced: RawColumns, draw: int) -> pa.Table:
        """The labels, with the same value in all rows of each replaced column; draws differ in the values."""
        connection = self._connection
        connection.execute("DROP SCHEMA IF EXISTS raw CASCADE; CREATE SCHEMA raw")
        connection.execute("DROP SCHEMA IF EXISTS staging CASCADE; CREATE SCHEMA staging")
        places = {column: (2 * number + draw) % len(_SHARES) + 1 for number, column in enumerate(sorted(replaced))}
        for table in self._tables:
            values = [
                f"(SELECT value[{place}] FROM spread.{quoted(f'{table}.{name}')}) AS {quoted(name)}"
                for (of, name), place in places.items()
                if of == table
            ]
            others = f" REPLACE ({', '.join(values)})" if values else ""
            connection.execute(f"CREATE VIEW raw.{quoted(table)} AS SELECT *{others} FROM restored.{quoted(table)}")
        stage_tables(connection, self._repository, [self._repository.entity_rows])
        return outcomes_in(connection, self._repository)

    def _measure(self, columns: Iterable[tuple[str, str]]) -> None:
        """Keep values spread over columns, once each."""
        self._connection.execute("CREATE SCHEMA IF NOT EXISTS spread")
        for table, name in sorted(frozenset(columns) - self._spread):
            self._connection.execute(
                f"CREATE TABLE spread.{quoted(f'{table}.{name}')} AS "
                f"SELECT quantile_disc({quoted(name)}, {[*_SHARES]}) AS value FROM source.{quoted(table)}"
            )
        self._spread |= frozenset(columns)

    def _by_trial(self) -> RawColumns:
        """The columns without which the decisions are the same, and the labels others."""
        self.restore(None)
        whole = self._told(frozenset())
        tables = columns_of(self._connection, self._repository, self._repository.entity_rows)
        found = set[tuple[str, str]]()
        for column in ((table, name) for table, names in tables.items() for name in names):
            without = self._told(frozenset([column]))
            if without.num_rows == whole.num_rows and not without[TOLD].equals(whole[TOLD]):
                found.add(column)
        return frozenset(found)


def area(rows: pa.Table) -> float:
    """ROC AUC of `TOLD` for `HIGH`; rows of which nothing is told are in the middle, and those without `HIGH` out."""
    rows = rows.filter(pc.is_valid(rows[HIGH]))
    if not rows.num_rows:
        return 0.5
    middle = float(np.mean(pc.cast(rows["label"], pa.float64()).to_numpy()))
    told = pc.fill_null(pc.cast(rows[TOLD], pa.float64()), middle).to_numpy()
    return roc_auc(pc.cast(rows[HIGH], pa.int8()).to_numpy(), told)


def label_age(rows: pa.Table) -> timedelta:
    """How long after its decision a label is known, for nine of ten rows."""
    return timedelta(microseconds=int(_ages(rows, "label_time")[-1]))


def has_own_time(arrived: pa.Table) -> bool:
    """Whether labels arrive at times of their own, as at a landing, and not after the same time as all others."""
    least, middle, most = _ages(arrived, ARRIVED)
    return bool(most - least > _SAME * middle)


def _ages(rows: pa.Table, time: str) -> npt.NDArray[np.float64]:
    """The time from decision to label in microseconds: of one in ten rows it is less, of half, of nine in ten."""
    ages = pc.subtract(rows[time], rows["decision_time"]).cast(pa.int64()).drop_null().to_numpy()
    return np.quantile(ages, [0.1, 0.5, 0.9]) if len(ages) else np.zeros(3)


def _with_opposite_labels(training_set: pa.Table) -> pa.Table:
    labels = pc.cast(training_set["label"], pa.float64()).to_numpy()
    values, counts = np.unique(labels, return_counts=True)
    if len(values) > _FEW_LABELS:
        lowest, highest = np.quantile(labels, [1 / 3, 2 / 3])
        low, high = labels <= lowest, (labels >= highest) & (labels > lowest)
    else:
        common = np.sort(values[np.argsort(-counts, kind="stable")[:2]])
        low, high = np.isin(labels, common[:1]), np.isin(labels, common[1:])
    numbered = training_set.append_column(ROW, pa.array(np.arange(training_set.num_rows)))
    return numbered.append_column(HIGH, pa.array(high, mask=~(low | high)))
