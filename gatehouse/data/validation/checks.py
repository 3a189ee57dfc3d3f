"""Judges the tables of a snapshot against a contract, the rules of each in one pass."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb

from gatehouse.data.validation.anomalies import Anomaly, Findings
from gatehouse.data.validation.column_contract import GradedRule
from gatehouse.data.validation.contract import Contract, ForeignKey, Ordering, TableContract
from gatehouse.data.validation.graded import Rule
from gatehouse.data.validation.movement import MOVEMENTS
from gatehouse.data.validation.rules import RowRule, count, row_rules, share, unrunnable
from gatehouse.data.validation.tables import (
    Table,
    alike,
    examples,
    literal,
    misplaced,
    name,
    repeats,
    scan,
    scan_values,
)

Statistics = Mapping[str, Any]
ByColumn = Mapping[str, Mapping[str, Statistics]]
_OTHER = "gatehouse_other"
_EMPTY = TableContract.model_construct(columns={}, extra_columns="allow", min_rows=Rule(value=0))


@dataclass(frozen=True)
class Baseline:
    """What a snapshot is compared with.

    Attributes:
        statistics: Statistics by table and column of the baseline.
        rebinned: Statistics of the snapshot, its rows counted in the bins and values of the baseline.
        rows: Rows by table of the baseline.
    """

    statistics: ByColumn = field(default_factory=dict)
    rebinned: ByColumn = field(default_factory=dict)
    rows: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Judge:
    """What judging a table needs besides the table.

    Attributes:
        connection: DuckDB with a view for every table.
        tables: The snapshot's tables by name.
        contract: The contract.
        as_of: The snapshot's time, which freshness is judged against.
        statistics: Statistics by table and column of the snapshot.
        baseline: What it is compared with; None for nothing.
        findings: Where anomalies are collected.
        elsewhere: Tables of other snapshots, by the snapshot as the contract names it, and by name.
    """

    connection: duckdb.DuckDBPyConnection
    tables: Mapping[str, Table]
    contract: Contract
    as_of: datetime
    statistics: ByColumn
    baseline: Baseline | None
    findings: Findings
    elsewhere: Mapping[str, Mapping[str, Table]] = field(default_factory=dict)

    def run(self) -> None:
        """Judge every table."""
        for missing in sorted(set(self.contract.tables) - set(self.tables)):
            owner = self.contract.tables[missing].owner or self.contract.owner
            self.findings.add(
                Anomaly(missing, "table", "", "fail", owner, "a table of this name", "none in the snapshot")
            )
        for table_name, table in sorted(self.tables.items()):
            if table_name not in self.contract.tables:
                self.findings.not_judged.append(f"{table_name}: the contract has no rules for this table")
            _TableJudge(self, table, self.contract.tables.get(table_name, _EMPTY)).run()


@dataclass(frozen=True)
class _Unique:
    """Columns whose values no two rows share; of a rule on one column nulls are left out."""

    rule: str
    severity: str
    owner: str
    columns: tuple[str, ...]
    nulls_left_out: bool


class _TableJudge:
    """Judges one table."""

    def __init__(self, judge: Judge, table: Table, contract: TableContract) -> None:
        self.judge, self.table, self.contract = judge, table, contract
        self.connection, self.findings = judge.connection, judge.findings
        self.types = table.types()
        self.owner = contract.owner or judge.contract.owner
        self.sensitive = judge.contract.sensitive(table.name, self.types)
        self.alike = alike(self.types)
        self.usable = [
            column
            for column, promised in contract.columns.items()
            if self.types.get(column) == promised.type.value and column not in self.alike
        ]

    def run(self) -> None:
        """Judge every rule."""
        self._schema()
        found = row_rules(self.contract, list(self.types), self.usable, self.sensitive)
        rules = [rule for rule in found if self._runs(rule)]
        unique = list(self._unique_sets())
        wanted = {f"count|{one.columns[0]}": f"count({name(one.columns[0])})" for one in unique if one.nulls_left_out}
        wanted |= {f"unique|{index}": _distinct(one) for index, one in enumerate(unique)}
        if self.contract.freshness and self._is_judged((self.contract.freshness.column,), "freshness"):
            column = name(self.contract.freshness.column)
            wanted["freshness"] = f"max({column}) FILTER (WHERE {column} <= {literal(self.judge.as_of)})"
        scanned = self._scan(wanted, rules)
        self._row_counts()
        for index, rule in enumerate(rules):
            if f"rule|{index}" in scanned:
                self.findings.add(self._row_anomaly(rule, scanned[f"rule|{index}"]))
        for index, one in enumerate(unique):
            held = scanned[f"count|{one.columns[0]}"] if one.nulls_left_out else self.table.rows
            self.findings.add(None if scanned[f"unique|{index}"] == held else self._repeated(one))
        if "freshness" in scanned:
            self._freshness(scanned["freshness"])
        if self.contract.ordered is not None:
            self._ordering(self.contract.ordered)
        for key in self.contract.foreign_keys:
            self._foreign_key(key)
        for column, promised in self.contract.columns.items():
            for graded in promised.graded() if column in self.usable else ():
                self._distinct_share(column, graded, promised.owner)
                self._movement(column, graded, promised.owner)

    # Structure

    def _schema(self) -> None:
        for column, promised in self.contract.columns.items():
            found, kind = self.types.get(column), promised.type
            severity, owner = kind.severity or "fail", kind.owner or promised.owner
            if found is None:
                have = ", ".join(self.types)
                self._add("column", (column,), severity, owner, f"a column of type {kind.value}", f"only {have}")
            elif found != kind.value:
                self._add("type", (column,), severity, owner, kind.value, found)
            elif column in self.alike:
                self._add("column", (column,), severity, owner, "a name of its own", f"also {self.alike[column]}")
            else:
                self.findings.add(None)
                continue
            self.findings.not_judged.append(
                f"{self.table.name}.{column}: its values, as there is no one {kind.value} column of this name"
            )
        policy = self.contract.extra_columns
        if policy == "allow":
            return
        for column in self.types:
            if column not in self.contract.columns:
                self._add("extra_columns", (column,), policy, "", "no such column", self.types[column])

    def _row_counts(self) -> None:
        rows, contract = self.table.rows, self.contract
        before = self.judge.baseline.rows.get(self.table.name) if self.judge.baseline else None
        limits: list[tuple[str, Rule[Any] | None, int | None]] = [
            ("min_rows", contract.min_rows, 1),
            ("max_rows", contract.max_rows, 1),
            ("min_rows_ratio", contract.min_rows_ratio, before),
            ("max_rows_ratio", contract.max_rows_ratio, before),
        ]
        for key, rule, unit in limits:
            if rule is None:
                continue
            if unit is None:
                self._not_compared("", key)
                continue
            least = key.startswith("min")
            if rows >= rule.value * unit if least else rows <= rule.value * unit:
                self.findings.add(None)
                continue
            of_baseline = f", {rule.value:g} times the {before:,} of the baseline" if key.endswith("ratio") else ""
            limit = math.ceil(rule.value * unit) if least else math.floor(rule.value * unit)
            expected = f"at {'least' if least else 'most'} {limit:,} rows{of_baseline}"
            self._add(key, (), rule.severity or "fail", rule.owner, expected, f"{rows:,} rows")

    # Rules on rows

    def _runs(self, rule: RowRule) -> bool:
        """Whether the user's SQL in a rule can be evaluated for a row; if not, that is an anomaly."""
        why = unrunnable(self.connection, name(self.table.name), rule)
        return not why or self._cannot_run(rule, why)

    def _scan(self, wanted: Mapping[str, str], rules: Sequence[RowRule]) -> dict[str, Any]:
        """One pass for statistics and rules; where a rule fails on some row, it is found by scanning again."""
        keys = {f"rule|{index}": rule for index, rule in enumerate(rules)}
        counted = self._scan_values({key: rule for key, rule in keys.items() if rule.costly})
        keys = {key: rule for key, rule in keys.items() if key not in counted}
        counts = {key: count(rule.broken) for key, rule in keys.items()}
        try:
            return counted | scan(self.connection, self.table.name, {**wanted, **counts})
        except duckdb.Error:
            scanned = counted | scan(self.connection, self.table.name, wanted)
        for key, rule in keys.items():
            try:
                scanned |= scan(self.connection, self.table.name, {key: counts[key]})
            except duckdb.Error as error:
                self._cannot_run(rule, self._message(error))
        return scanned

    def _scan_values(self, rules: Mapping[str, RowRule]) -> dict[str, Any]:
        """Rows that break each rule, of the columns whose values stand in many rows: each value is looked at once."""
        by_column: dict[str, dict[str, str]] = {}
        for key, rule in rules.items():
            by_column.setdefault(rule.columns[0], {})[key] = rule.broken
        scanned: dict[str, Any] = {}
        for column, broken in by_column.items():
            if repeats(self.connection, self.table.name, column):
                scanned |= scan_values(self.connection, self.table.name, column, broken)
        return scanned

    def _row_anomaly(self, rule: RowRule, rows: int) -> Anomaly | None:
        total = self.table.rows
        if rows <= rule.tolerance * total + 1e-9:
            return None
        allowed = f" in all but {share(rule.tolerance)} of the rows" if rule.sql and rule.tolerance else ""
        shown = self._examples(f"WHERE {rule.broken}", rule.columns)
        observed = f"{rows:,} of {total:,} rows that break it"
        return self._anomaly(
            rule.rule, rule.columns, rule.severity, rule.owner, rule.expected + allowed, observed, rows, shown
        )

    # Rules on sets of rows

    def _unique_sets(self) -> Iterator[_Unique]:
        for column, promised in self.contract.columns.items():
            for graded in promised.graded() if column in self.usable else ():
                if graded.key == "unique":
                    yield _Unique(graded.label, graded.severity, graded.owner or promised.owner, (column,), True)
        for key in self.contract.unique:
            if self._is_judged(key.columns, "unique"):
                yield _Unique("unique", key.severity, key.owner, key.columns, False)

    def _repeated(self, one: _Unique) -> Anomaly | None:
        """Count exactly what the hashes of the scan suggest; None where only two hashes met."""
        listed = ", ".join(map(name, one.columns))
        where = f"WHERE {name(one.columns[0])} IS NOT NULL" if one.nulls_left_out else ""
        grouped = f"SELECT count(*) AS n FROM {name(self.table.name)} {where} GROUP BY {listed} HAVING count(*) > 1"
        rows = int(self.connection.execute(f"SELECT coalesce(sum(n), 0) FROM ({grouped})").fetchall()[0][0])
        if rows == 0:
            return None
        shown = self._examples(f"{where} QUALIFY count(*) OVER (PARTITION BY {listed}) > 1", one.columns)
        observed = f"{rows:,} rows that share them with another row"
        expected = "values that no two rows share"
        return self._anomaly(one.rule, one.columns, one.severity, one.owner, expected, observed, rows, shown)

    def _freshness(self, newest: datetime | None) -> None:
        """Judge the newest time up to the snapshot's: a time beyond it says nothing of how late the data is."""
        rule = self.contract.freshness
        assert rule is not None  # the scan asks for the newest value only where there is such a rule
        as_of = self.judge.as_of
        if newest is not None and newest.tzinfo is None:
            newest = newest.replace(tzinfo=UTC)
        if newest is not None and as_of - newest <= rule.within:
            self.findings.add(None)
            return
        expected = f"a row at most {_duration(rule.within)} older than {as_of.isoformat()}"
        observed = f"{newest.isoformat()} as the newest" if newest else "no value up to then"
        if rule.column in self.sensitive:
            observed = "none"
        self._add("freshness", (rule.column,), rule.severity, rule.owner, expected, observed)

    def _ordering(self, order: Ordering) -> None:
        if not self._is_judged(order.by, "ordered"):
            return
        rows, first = misplaced(
            self.connection, self.table, order.by, order.descending, order.strictly, self.judge.contract.examples
        )
        if rows == 0:
            self.findings.add(None)
            return
        direction = "falling" if order.descending else "rising"
        expected = f"rows in {'strictly ' if order.strictly else ''}{direction} order"
        shown = self._examples(f"WHERE gatehouse_row IN ({', '.join(map(str, first))})", order.by) if first else ()
        observed = f"{rows:,} row{'s' * (rows != 1)} out of order"
        self._add("ordered", order.by, order.severity, order.owner, expected, observed, rows, shown)

    def _foreign_key(self, key: ForeignKey) -> None:
        tables = self.judge.elsewhere.get(key.snapshot, {}) if key.snapshot else self.judge.tables
        target, to = tables.get(key.table), key.to or key.columns
        place = f"{key.table} of {key.snapshot}" if key.snapshot else key.table
        expected = f"values of {place}({', '.join(to)})"
        expected += f" in all but {share(key.tolerance)} of the rows" if key.tolerance else ""
        if not self._is_judged(key.columns, "foreign_keys"):
            return
        if target is None or any(column not in target.types() or column in alike(target.types()) for column in to):
            found = "no such table or column in the snapshot, or two whose names differ only in case"
            if key.snapshot and key.snapshot not in self.judge.elsewhere:
                found = "that nobody said which snapshot that is"
            self._add("foreign_keys", key.columns, key.severity, key.owner, expected, found)
            return
        for column, there in zip(key.columns, to, strict=True):
            mine_is, theirs_is = self.types[column], target.types()[there]
            if mine_is != theirs_is:
                found = f"{theirs_is} in {place}({there}), which are never compared with {mine_is}"
                self._add("foreign_keys", key.columns, key.severity, key.owner, expected, found)
                return
        mine = [f"{name(self.table.name)}.{name(column)}" for column in key.columns]
        pairs = " AND ".join(f"{_OTHER}.{name(there)} = {here}" for here, there in zip(mine, to, strict=True))
        held = " AND ".join(f"{column} IS NOT NULL" for column in mine)
        where = f"WHERE {held} AND NOT EXISTS (SELECT 1 FROM {name(target.name)} AS {_OTHER} WHERE {pairs})"
        rule = RowRule("foreign_keys", key.columns, key.severity, key.owner, expected, where, key.tolerance)
        try:
            rows = self.connection.execute(f"SELECT count(*) FROM {name(self.table.name)} {where}").fetchall()[0][0]
        except duckdb.Error as error:
            self._cannot_run(rule, self._message(error))
            return
        if rows <= key.tolerance * self.table.rows + 1e-9:
            self.findings.add(None)
            return
        shown = self._examples(where, key.columns)
        observed = f"{rows:,} rows without a match"
        self._add("foreign_keys", key.columns, key.severity, key.owner, expected, observed, rows, shown)

    # Rules on distributions

    def _distinct_share(self, column: str, rule: GradedRule, owner: str) -> None:
        if not rule.key.endswith("distinct_share"):
            return
        found = self.judge.statistics[self.table.name][column]
        held = self.table.rows - found["nulls"]
        share = found.get("distinct", 0) / held if held else 0.0
        least = rule.key.startswith("min")
        if held == 0 or (share >= rule.value if least else share <= rule.value):
            self.findings.add(None)
            return
        expected = f"at {'least' if least else 'most'} {rule.value:.4g} different values to a value"
        about = "" if found.get("exact", True) else "about "
        self._add(rule.label, (column,), rule.severity, rule.owner or owner, expected, f"{about}{share:.4g}")

    def _movement(self, column: str, rule: GradedRule, owner: str) -> None:
        """Judge how far a distribution moved from the baseline."""
        movement = MOVEMENTS.get(rule.key)
        if movement is None:
            return
        baseline, table = self.judge.baseline, self.table.name
        before = baseline.statistics.get(table, {}).get(column) if baseline else None
        now = baseline.rebinned.get(table, {}).get(column) if baseline else None
        if before is None or now is None:
            self._not_compared(column, rule.label)
            return
        rows = min(self.table.rows, baseline.rows.get(table, 0)) if baseline else 0
        if movement.least_rows > rows:
            why = f"{movement.least_rows} rows are needed on both sides, and one has {rows}"
            self.findings.not_judged.append(f"{table}.{column}: {rule.label}, as {why}")
            return
        found = movement.measure(before, now)
        if found <= rule.value:
            self.findings.add(None)
        elif found != found:
            self.findings.not_judged.append(f"{table}.{column}: {rule.label}, as one side has no values")
        else:
            expected = f"{movement.title} at most {rule.value:g}{movement.unit}"
            self._add(rule.label, (column,), rule.severity, rule.owner or owner, expected, f"{found:.6g}")

    def _not_compared(self, column: str, rule: str) -> None:
        why = "the baseline has no statistics of it" if self.judge.baseline else "there is no baseline"
        place = f"{self.table.name}.{column}" if column else self.table.name
        self.findings.not_judged.append(f"{place}: {rule}, as {why}")

    # Anomalies

    def _is_judged(self, columns: Iterable[str], rule: str) -> bool:
        """Whether the columns of a rule are there in the right type; a rule that cannot run never passes silently."""
        wrong = [column for column in columns if column not in self.usable]
        if wrong:
            self.findings.not_judged.append(
                f"{self.table.name}: {rule}, as {', '.join(wrong)} is missing, of another type, or there twice"
            )
        return not wrong

    def _cannot_run(self, rule: RowRule, why: str) -> bool:
        self._add(
            rule.rule, rule.columns, rule.severity, rule.owner, rule.expected, f"that it cannot be evaluated: {why}"
        )
        return False

    def _message(self, error: duckdb.Error) -> str:
        """DuckDB's message, or only its kind where a message could hold a sensitive value."""
        if isinstance(error, duckdb.OutOfMemoryException):
            raise error
        hidden = any(self.judge.contract.sensitive(table) for table in self.judge.contract.tables)
        return type(error).__name__ if hidden or self.judge.elsewhere else str(error).splitlines()[0]

    def _examples(self, condition: str, columns: Sequence[str]) -> tuple[dict[str, Any], ...]:
        first = next(iter(self.contract.unique), None)
        key = [column for column in first.columns if column in self.types] if first else []
        limit = self.judge.contract.examples
        return examples(self.connection, self.table, condition, [*key, *columns], self.sensitive, limit)

    def _anomaly(
        self,
        rule: str,
        columns: Sequence[str],
        severity: str,
        owner: str,
        expected: str,
        observed: str,
        rows: int | None = None,
        shown: tuple[dict[str, Any], ...] = (),
    ) -> Anomaly:
        where, asked = ", ".join(columns), owner or self.owner
        return Anomaly(self.table.name, rule, where, severity, asked, expected, observed, rows, shown)

    def _add(self, *parts: Any) -> None:
        self.findings.add(self._anomaly(*parts))


def _distinct(one: _Unique) -> str:
    """Distinct hashes of some columns: equal rows have equal hashes, so a full count proves that all differ."""
    hashed = f"count(DISTINCT hash({', '.join(map(name, one.columns))}))"
    return f"{hashed} FILTER (WHERE {name(one.columns[0])} IS NOT NULL)" if one.nulls_left_out else hashed


def _duration(span: timedelta) -> str:
    hours = span.total_seconds() / 3600
    return f"{hours / 24:g} days" if hours >= 48 else f"{hours:g} hours"
