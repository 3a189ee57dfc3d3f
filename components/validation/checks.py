"""Judges the tables of a snapshot against a contract, the rules of each in one pass."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import duckdb

from gatehouse.components.validation.anomalies import Anomaly, Findings
from gatehouse.components.validation.contract import Contract, TableContract
from gatehouse.components.validation.drift import psi
from gatehouse.components.validation.rules import RowRule, row_rules
from gatehouse.components.validation.tables import Table, examples, name, scan

Statistics = Mapping[str, Any]
_EMPTY = TableContract.model_construct(columns={}, extra_columns="allow", min_rows=0)


@dataclass(frozen=True)
class Judge:
    """What judging a table needs besides the table.

    Attributes:
        connection: DuckDB with a view for every table.
        tables: The snapshot's tables by name.
        contract: The contract.
        as_of: The snapshot's time, which freshness is judged against.
        statistics: Statistics by table and column of the snapshot.
        rebinned: The same, with the rows counted in the bins and values of the baseline.
        baseline: Statistics by table and column of the baseline; empty for none.
        findings: Where anomalies are collected.
    """

    connection: duckdb.DuckDBPyConnection
    tables: Mapping[str, Table]
    contract: Contract
    as_of: datetime
    statistics: Mapping[str, Mapping[str, Statistics]]
    rebinned: Mapping[str, Mapping[str, Statistics]]
    baseline: Mapping[str, Mapping[str, Statistics]]
    findings: Findings

    def run(self) -> None:
        """Judge every table."""
        for missing in sorted(set(self.contract.tables) - set(self.tables)):
            owner = self.contract.tables[missing].owner
            self.findings.add(
                Anomaly(missing, "table", "", "fail", owner, "a table of this name", "none in the snapshot")
            )
        for table_name, table in sorted(self.tables.items()):
            if table_name not in self.contract.tables:
                self.findings.not_judged.append(f"{table_name}: the contract has no rules for this table")
            _TableJudge(self, table, self.contract.tables.get(table_name, _EMPTY)).run()


class _TableJudge:
    """Judges one table."""

    def __init__(self, judge: Judge, table: Table, contract: TableContract) -> None:
        self.judge, self.table, self.contract = judge, table, contract
        self.connection, self.findings = judge.connection, judge.findings
        self.types = table.types()
        self.sensitive = frozenset(column for column, promised in contract.columns.items() if promised.sensitive)
        self.usable = [
            column for column, promised in contract.columns.items() if self.types.get(column) == promised.type
        ]

    def run(self) -> None:
        """Judge every rule."""
        self._schema()
        rules = [rule for rule in row_rules(self.contract, list(self.types), self.usable) if self._runs(rule)]
        unique = self._unique_sets()
        wanted = {f"count|{columns[0]}": f"count({name(columns[0])})" for _, _, columns, keep in unique if keep}
        wanted |= {f"unique|{index}": _distinct(columns, keep) for index, (_, _, columns, keep) in enumerate(unique)}
        if self._is_judged(self._freshness_columns()) and self.contract.freshness:
            wanted["freshness"] = f"max({name(self.contract.freshness.column)})"
        scanned = self._scan(wanted, rules)
        self._row_count()
        for index, rule in enumerate(rules):
            if f"rule|{index}" in scanned:
                self.findings.add(self._row_anomaly(rule, scanned[f"rule|{index}"]))
        for index, (rule_name, severity, columns, keep) in enumerate(unique):
            nulls = self.table.rows - scanned[f"count|{columns[0]}"] if keep else 0
            if scanned[f"unique|{index}"] == self.table.rows - nulls:
                self.findings.add(None)
            else:
                self.findings.add(self._repeated(rule_name, severity, columns, keep))
        if "freshness" in scanned:
            self._freshness(scanned["freshness"])
        for key in self.contract.foreign_keys:
            self._foreign_key(key)
        named = self.table.name
        self._drift(self.judge.baseline.get(named, {}), self.judge.rebinned.get(named, {}))

    # Structure

    def _schema(self) -> None:
        for column, promised in self.contract.columns.items():
            owner, found = promised.owner or self.contract.owner, self.types.get(column)
            if found is None:
                have = ", ".join(self.types)
                self._add("column", (column,), "fail", owner, f"a column of type {promised.type}", f"only {have}")
            elif found != promised.type:
                self._add("type", (column,), "fail", owner, promised.type, found)
            else:
                self.findings.add(None)
                continue
            self.findings.not_judged.append(
                f"{self.table.name}.{column}: its values, as it is not a {promised.type} column"
            )
        extra = [column for column in self.types if column not in self.contract.columns]
        if self.contract.extra_columns == "allow" or not extra:
            return
        for column in extra:
            severity = self.contract.extra_columns
            self._add("extra_columns", (column,), severity, self.contract.owner, "no such column", self.types[column])

    def _row_count(self) -> None:
        low, high, rows = self.contract.min_rows, self.contract.max_rows, self.table.rows
        if low <= rows and (high is None or rows <= high):
            self.findings.add(None)
            return
        expected = f"at least {low:,} rows" + (f" and at most {high:,}" if high is not None else "")
        self._add("rows", (), "fail", self.contract.owner, expected, f"{rows:,} rows")

    # Rules on rows

    def _runs(self, rule: RowRule) -> bool:
        """Whether the user's SQL in a rule can be evaluated for a row; if not, that is an anomaly."""
        if not rule.sql and rule.rule.removeprefix("warn.") != "pattern":
            return True
        view = name(self.table.name)
        try:
            if rule.sql:
                kind = self.connection.execute(f"DESCRIBE SELECT ({rule.sql}\n) AS kept FROM {view}").fetchall()[0][1]
                if kind != "BOOLEAN":
                    return self._cannot_run(rule, f"an expression of type {kind} where a condition is expected")
            self.connection.execute(f"DESCRIBE SELECT {_count(rule.broken)} FROM {view}")
        except duckdb.Error as error:
            return self._cannot_run(rule, self._message(error))
        return True

    def _scan(self, wanted: Mapping[str, str], rules: Sequence[RowRule]) -> dict[str, Any]:
        """One pass for statistics and rules; where a rule fails on some row, it is found by scanning again."""
        counts = {f"rule|{index}": _count(rule.broken) for index, rule in enumerate(rules)}
        try:
            return scan(self.connection, self.table.name, {**wanted, **counts})
        except duckdb.Error:
            scanned = scan(self.connection, self.table.name, wanted)
        for index, rule in enumerate(rules):
            key = f"rule|{index}"
            try:
                scanned |= scan(self.connection, self.table.name, {key: counts[key]})
            except duckdb.Error as error:
                self._cannot_run(rule, self._message(error))
        return scanned

    def _row_anomaly(self, rule: RowRule, rows: int) -> Anomaly | None:
        total = self.table.rows
        if rows <= rule.tolerance * total + 1e-9:
            return None
        allowed = f" in all but {rule.tolerance:.2%} of the rows" if rule.sql and rule.tolerance else ""
        shown = self._examples(f"WHERE {rule.broken}", rule.columns)
        observed = f"{rows:,} of {total:,} rows that break it"
        return self._anomaly(
            rule.rule, rule.columns, rule.severity, rule.owner, rule.expected + allowed, observed, rows, shown
        )

    # Rules on sets of rows

    def _unique_sets(self) -> list[tuple[str, str, tuple[str, ...], bool]]:
        """Rule, severity, columns, and whether nulls are left out, of everything that must be unique."""
        found = []
        for column, promised in self.contract.columns.items():
            for prefix, rules in promised.graded():
                if rules.unique and column in self.usable:
                    found.append((f"{prefix}unique", "warn" if prefix else "fail", (column,), True))
        return found + [
            ("unique", "fail", key, False) for key in self.contract.unique if self._is_judged(key, "unique")
        ]

    def _repeated(self, rule: str, severity: str, columns: tuple[str, ...], keep: bool) -> Anomaly | None:
        """Count exactly what the hashes of the scan suggest; None where only two hashes met."""
        listed = ", ".join(map(name, columns))
        where = f"WHERE {name(columns[0])} IS NOT NULL" if keep else ""
        grouped = f"SELECT count(*) AS n FROM {name(self.table.name)} {where} GROUP BY {listed} HAVING count(*) > 1"
        rows = int(self.connection.execute(f"SELECT coalesce(sum(n), 0) FROM ({grouped})").fetchall()[0][0])
        if rows == 0:
            return None
        shown = self._examples(f"{where} QUALIFY count(*) OVER (PARTITION BY {listed}) > 1", columns)
        observed = f"{rows:,} rows that share them with another row"
        owner = self._owner(columns)
        return self._anomaly(rule, columns, severity, owner, "values that no two rows share", observed, rows, shown)

    def _freshness_columns(self) -> tuple[str, ...]:
        return (self.contract.freshness.column,) if self.contract.freshness else ()

    def _freshness(self, newest: datetime | None) -> None:
        rule = self.contract.freshness
        assert rule is not None  # the scan asks for the newest value only where there is such a rule
        as_of = self.judge.as_of
        if newest is not None and as_of - newest <= rule.within:
            self.findings.add(None)
            return
        expected = f"a row at most {_duration(rule.within)} older than {as_of.isoformat()}"
        observed = f"{newest.isoformat()} as the newest" if newest else "no value at all"
        if rule.column in self.sensitive:
            observed = "none"
        self._add("freshness", (rule.column,), rule.severity, rule.owner or self.contract.owner, expected, observed)

    def _foreign_key(self, key: Any) -> None:
        target, to = self.judge.tables.get(key.table), key.to or key.columns
        severity, owner = key.severity, key.owner or self.contract.owner
        expected = f"values of {key.table}({', '.join(to)})" + (
            f" in all but {key.tolerance:.2%} of the rows" if key.tolerance else ""
        )
        if not self._is_judged(key.columns, "foreign_keys"):
            return
        if target is None or any(column not in target.types() for column in to):
            self._add("foreign_keys", key.columns, severity, owner, expected, "no such table or column in the snapshot")
            return
        mine = [f"{name(self.table.name)}.{name(column)}" for column in key.columns]
        pairs = " AND ".join(f"other.{name(there)} = {here}" for here, there in zip(mine, to, strict=True))
        held = " AND ".join(f"{column} IS NOT NULL" for column in mine)
        where = f"WHERE {held} AND NOT EXISTS (SELECT 1 FROM {name(key.table)} AS other WHERE {pairs})"
        rule = RowRule("foreign_keys", key.columns, severity, owner, expected, where, key.tolerance)
        try:
            rows = self.connection.execute(f"SELECT count(*) FROM {name(self.table.name)} {where}").fetchall()[0][0]
        except duckdb.Error as error:
            self._cannot_run(rule, self._message(error))
            return
        if rows <= key.tolerance * self.table.rows + 1e-9:
            self.findings.add(None)
            return
        shown = self._examples(where, key.columns)
        self._add("foreign_keys", key.columns, severity, owner, expected, f"{rows:,} rows without a match", rows, shown)

    def _drift(self, baseline: Mapping[str, Statistics], rebinned: Mapping[str, Statistics]) -> None:
        for column, promised in self.contract.columns.items():
            for prefix, rules in promised.graded():
                if rules.psi is None or column not in self.usable:
                    continue
                if column not in rebinned:
                    why = "the baseline has no statistics of it" if self.judge.baseline else "there is no baseline"
                    self.findings.not_judged.append(f"{self.table.name}.{column}: {prefix}psi, as {why}")
                    continue
                found = psi(baseline[column], rebinned[column])
                severity = "warn" if prefix else "fail"
                expected = f"a population stability index of at most {rules.psi}"
                if found <= rules.psi:
                    self.findings.add(None)
                else:
                    self._add(f"{prefix}psi", (column,), severity, self._owner((column,)), expected, f"{found:.3f}")

    # Anomalies

    def _is_judged(self, columns: Iterable[str], rule: str = "freshness") -> bool:
        """Whether the columns of a rule are there in the right type; a rule that cannot run never passes silently."""
        wrong = [column for column in columns if column not in self.usable]
        if wrong:
            self.findings.not_judged.append(
                f"{self.table.name}: {rule}, as {', '.join(wrong)} is missing or of another type"
            )
        return not wrong

    def _cannot_run(self, rule: RowRule, why: str) -> bool:
        self._add(
            rule.rule, rule.columns, rule.severity, rule.owner, rule.expected, f"that it cannot be evaluated: {why}"
        )
        return False

    def _message(self, error: duckdb.Error) -> str:
        """DuckDB's message, or only its kind where a message could hold a sensitive value."""
        return type(error).__name__ if self.sensitive else str(error).splitlines()[0]

    def _owner(self, columns: Sequence[str]) -> str:
        promised = self.contract.columns.get(columns[0]) if len(columns) == 1 else None
        return promised.owner if promised and promised.owner else self.contract.owner

    def _examples(self, condition: str, columns: Sequence[str]) -> tuple[dict[str, Any], ...]:
        key = [column for column in next(iter(self.contract.unique), ()) if column in self.types]
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
        return Anomaly(self.table.name, rule, ", ".join(columns), severity, owner, expected, observed, rows, shown)

    def _add(self, *parts: Any) -> None:
        self.findings.add(self._anomaly(*parts))


def _count(condition: str) -> str:
    return f"count(*) FILTER (WHERE {condition})"


def _distinct(columns: Sequence[str], keep: bool) -> str:
    """Distinct hashes of some columns: equal rows have equal hashes, so a full count proves that all differ."""
    hashed = f"count(DISTINCT hash({', '.join(map(name, columns))}))"
    return f"{hashed} FILTER (WHERE {name(columns[0])} IS NOT NULL)" if keep else hashed


def _duration(span: timedelta) -> str:
    hours = span.total_seconds() / 3600
    return f"{hours / 24:g} days" if hours >= 48 else f"{hours:g} hours"
