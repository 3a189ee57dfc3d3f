"""Judges the tables of a snapshot against a contract: rules on rows as SQL conditions, in one pass over each table."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import duckdb

from gatehouse.data.statistics.stage import ByColumn, Measurement
from gatehouse.data.validation.anomalies import MOVEMENTS, Anomaly, Findings
from gatehouse.data.validation.contract import (
    NOT_GIVEN,
    Contract,
    ForeignKey,
    GradedRule,
    Ordering,
    Rule,
    TableContract,
)
from gatehouse.data.validation.tables import Table, alike, examples, literal, misplaced, repeats, scan, scan_values
from gatehouse.errors import ConfigurationError
from gatehouse.store.database import quoted, text_literal
from gatehouse.store.repeatable_sql import repeatable

_SHOWN = 20
_QUERY = re.compile(r"\b(select|from|table)\b", re.IGNORECASE)


@dataclass(frozen=True)
class RowRule:
    """A rule that each row keeps or breaks; the first fields are as in `Anomaly`.

    `broken` is a SQL condition that holds for a row that breaks it, `sql` the part of it that the user wrote. A rule is
    `costly` if judging a value takes longer than grouping the rows by value.
    """

    rule: str
    columns: tuple[str, ...]
    severity: str
    owner: str
    expected: str
    broken: str
    tolerance: float = 0.0
    sql: str = ""
    costly: bool = False


def row_rules(
    contract: TableContract, present: Sequence[str], usable: Sequence[str], sensitive: frozenset[str]
) -> Iterator[RowRule]:
    """All rules of a table that are judged row by row; `usable` columns have the contract's type."""
    for column, promised in contract.columns.items():
        for rule in promised.graded() if column in usable else ():
            condition = _condition(quoted(column), promised.type.value, rule.key, rule.value, column in sensitive)
            if condition is not None:
                yield RowRule(
                    rule=rule.label,
                    columns=(column,),
                    severity=rule.severity,
                    owner=rule.owner or promised.owner,
                    expected=condition[0],
                    broken=condition[1],
                    tolerance=1 - rule.value if rule.key == "completeness" else 0.0,
                    costly=promised.type.value == "string" and rule.key in ("pattern", "allowed"),
                )
    for expression in contract.expressions:
        yield RowRule(
            rule=f"expression {expression.name}",
            columns=tuple(
                column for column in present if re.search(rf"\b{re.escape(column)}\b", expression.sql, re.IGNORECASE)
            ),
            severity=expression.severity,
            owner=expression.owner,
            expected=" ".join(expression.sql.split()),
            broken=f"NOT ({expression.sql}\n)",
            tolerance=expression.tolerance,
            sql=expression.sql,
        )


def unrunnable(connection: duckdb.DuckDBPyConnection, view: str, rule: RowRule) -> str:
    """Why the user's SQL in a rule cannot be evaluated for a row of a quoted view; empty if it can. Reads no row."""
    if not rule.sql and rule.rule.removeprefix("warn.") != "pattern":
        return ""
    try:
        if rule.sql:
            kind = connection.execute(f"DESCRIBE SELECT ({rule.sql}\n) AS kept FROM {view}").fetchall()[0][1]
            if kind != "BOOLEAN":
                return f"an expression of type {kind} where a condition is expected"
        connection.execute(f"DESCRIBE SELECT {count(rule.broken)} FROM {view}")
        repeatable_rule(connection, view, rule)
    except duckdb.Error as error:
        return str(error).splitlines()[0]
    except ConfigurationError as error:
        return str(error)
    return ""


def repeatable_rule(connection: duckdb.DuckDBPyConnection, view: str, rule: RowRule) -> RowRule:
    """The rule with a condition that does not depend on the order of rows, which a subquery in it may add up."""
    before, after = "SELECT (", f") AS broken FROM {view}"
    query = repeatable(connection, f"{before}{rule.broken}{after}", rule.rule) if rule.sql else ""
    return replace(rule, broken=query.removeprefix(before).removesuffix(after) or rule.broken)


def count(condition: str) -> str:
    """SQL of the number of rows for which a condition holds."""
    # Faster than count(*) FILTER; NULL where the condition is null in every row.
    return f"coalesce(count_if({condition}), 0)"


def _condition(identifier: str, kind: str, key: str, value: Any, sensitive: bool) -> tuple[str, str] | None:
    """The expectation in words, and the SQL that holds for a row that breaks it; None if the rule needs other rows."""
    not_a_number = f" OR isnan({identifier})" if kind == "double" else ""
    match key:
        case "nullable":
            return "no null", f"{identifier} IS NULL"
        case "completeness":
            return f"at least {share(value)} of the rows not null", f"{identifier} IS NULL"
        case "min":
            return f"at least {value}", f"({identifier} < {literal(value)}{not_a_number})"
        case "max":
            return f"at most {value}", f"({identifier} > {literal(value)}{not_a_number})"
        case "allowed":
            listed = ", ".join(map(str, value[:_SHOWN])) + ", …" * (len(value) > _SHOWN)
            return (
                f"one of {f'{len(value)} values' if sensitive else listed}",
                f"{identifier} NOT IN ({', '.join(map(literal, value))})",
            )
        case "pattern":
            return f"text like {value}", f"NOT regexp_full_match({identifier}, {text_literal(value)})"
        case "min_length":
            return f"at least {value} characters", f"length({identifier}) < {value}"
        case "max_length":
            return f"at most {value} characters", f"length({identifier}) > {value}"
    return None


def share(value: float) -> str:
    """A share as a percentage that is not rounded to all or nothing."""
    return f"{100 * value:.6g} %"


_OTHER = "gatehouse_other"
_WITHOUT_RULES = TableContract.model_construct(columns={}, extra_columns="allow", min_rows=Rule(value=0))


@dataclass(frozen=True)
class Judge:
    """A snapshot with a view for every table, its contract, and what it is compared with.

    Freshness is against `as_of`, if the snapshot has one. `elsewhere` are the tables of other snapshots, by the name
    that the contract gives the snapshot. `broken` has, by table, what `rule_counts` gives for all of its files.
    """

    connection: duckdb.DuckDBPyConnection
    tables: Mapping[str, Table]
    contract: Contract
    as_of: datetime | None
    statistics: ByColumn
    baseline: Measurement | None
    findings: Findings
    elsewhere: Mapping[str, Mapping[str, Table]] = field(default_factory=dict)
    broken: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def run(self) -> None:
        """Judge every table; anomalies are added to `findings`."""
        for missing in sorted(set(self.contract.tables) - set(self.tables)):
            owner = self.contract.tables[missing].owner or self.contract.owner
            self.findings.add(
                Anomaly(missing, "table", "", "fail", owner, "a table of this name", "none in the snapshot")
            )
        for table_name, table in sorted(self.tables.items()):
            if table_name not in self.contract.tables:
                self.findings.not_judged.append(f"{table_name}: the contract has no rules for this table")
            _TableJudge(self, table, self.contract.tables.get(table_name, _WITHOUT_RULES)).run()


@dataclass(frozen=True)
class _Unique:
    """Columns whose values no two rows share; a rule on one column ignores nulls."""

    rule: str
    severity: str
    owner: str
    columns: tuple[str, ...]
    ignores_nulls: bool

    @property
    def distinct(self) -> str:
        """SQL of the number of distinct hashes: rows are equal only if hashes are."""
        hashed = f"count(DISTINCT hash({', '.join(map(quoted, self.columns))}))"
        return f"{hashed} FILTER (WHERE {quoted(self.columns[0])} IS NOT NULL)" if self.ignores_nulls else hashed


def rule_counts(connection: duckdb.DuckDBPyConnection, table: Table, contract: Contract) -> dict[str, int]:
    """How many rows of some files of a table break each rule on rows, by the key of the rule.

    A rule that fails on some row is left out, and so is one that can look at other rows.
    """
    judge = Judge(connection, {table.name: table}, contract, None, {}, None, Findings())
    of_table = _TableJudge(judge, table, contract.tables[table.name])
    alone = {key: rule for key, rule in of_table.rules().items() if not _QUERY.search(rule.sql)}
    return of_table.scan({}, alone)


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
        """Judge every rule; the scan of the table counts the rows that break any of them."""
        self._schema()
        rules = self.rules()
        unique, freshness = list(self._unique_sets()), self.contract.freshness
        aggregates = {
            f"count|{key.columns[0]}": f"count({quoted(key.columns[0])})" for key in unique if key.ignores_nulls
        }
        aggregates |= {f"unique|{index}": key.distinct for index, key in enumerate(unique)}
        if freshness and self.judge.as_of is None:
            self._skip("", "freshness", "no table of the snapshot has event times", freshness.severity)
        elif freshness and self._is_judged((freshness.column,), "freshness"):
            column = quoted(freshness.column)
            # A time after the snapshot's does not show how late the data is.
            aggregates["freshness"] = f"max({column}) FILTER (WHERE {column} <= {literal(self.judge.as_of)})"
        broken = self.judge.broken.get(self.table.name, {})
        scanned = {**broken, **self.scan(aggregates, {key: rule for key, rule in rules.items() if key not in broken})}
        self._row_counts()
        for key, rule in rules.items():
            rows = scanned.get(key, 0)
            if rows <= rule.tolerance * self.table.rows + 1e-9:
                self.findings.judged += key in scanned
                continue
            allowed = f" in all but {share(rule.tolerance)} of the rows" if rule.sql and rule.tolerance else ""
            shown = self._examples(f"WHERE {rule.broken}", rule.columns)
            observed, expected = f"{rows:,} of {self.table.rows:,} rows that break it", rule.expected + allowed
            self._add(rule.rule, rule.columns, rule.severity, rule.owner, expected, observed, rows, shown)
        for index, keys in enumerate(unique):
            rows = scanned[f"count|{keys.columns[0]}"] if keys.ignores_nulls else self.table.rows
            self.findings.add(None if scanned[f"unique|{index}"] == rows else self._repeated(keys))
        if "freshness" in scanned:
            self._freshness(scanned["freshness"])
        if self.contract.ordered is not None:
            self._ordering(self.contract.ordered)
        for foreign_key in self.contract.foreign_keys:
            self._foreign_key(foreign_key)
        for column, promised in self.contract.columns.items():
            for graded in promised.graded() if column in self.usable else ():
                self._distinct_share(column, graded, promised.owner)
                self._movement(column, graded, promised.owner)

    def rules(self) -> dict[str, RowRule]:
        """The rules on rows that can be evaluated, each under a key of its own; the others are anomalies."""
        rules, view = list[RowRule](), quoted(self.table.name)
        for rule in row_rules(self.contract, list(self.types), self.usable, self.sensitive):
            if why := unrunnable(self.connection, view, rule):
                self._cannot_run(rule, why)
            else:
                rules.append(repeatable_rule(self.connection, view, rule))
        return {f"rule|{index}": rule for index, rule in enumerate(rules)}

    def _schema(self) -> None:
        for column, promised in self.contract.columns.items():
            actual, kind = self.types.get(column), promised.type
            severity, owner = kind.severity or "fail", kind.owner or promised.owner
            if actual is None:
                present = ", ".join(self.types)
                self._add("column", (column,), severity, owner, f"a column of type {kind.value}", f"only {present}")
            elif actual != kind.value:
                self._add("type", (column,), severity, owner, kind.value, actual)
            elif column in self.alike:
                self._add("column", (column,), severity, owner, "a name of its own", f"also {self.alike[column]}")
            else:
                self.findings.add(None)
                continue
            self.findings.not_judged.append(
                f"{self.table.name}.{column}: its values, as there is no one {kind.value} column of this name"
            )
        policy = self.contract.extra_columns
        for column in self.types if policy != "allow" else ():
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
                self._not_compared("", key, rule.severity or "fail")
                continue
            least = key.startswith("min")
            if rows >= rule.value * unit if least else rows <= rule.value * unit:
                self.findings.add(None)
                continue
            of_baseline = f", {rule.value:g} times the {before:,} of the baseline" if key.endswith("ratio") else ""
            limit = math.ceil(rule.value * unit) if least else math.floor(rule.value * unit)
            expected = f"at {'least' if least else 'most'} {limit:,} rows{of_baseline}"
            self._add(key, (), rule.severity or "fail", rule.owner, expected, f"{rows:,} rows")

    def scan(self, aggregates: Mapping[str, str], keys: Mapping[str, RowRule]) -> dict[str, Any]:
        """Scan once for all aggregates and rules; if a rule fails on some row, scan again to find which rule."""
        # Of columns whose values repeat, each value is judged once.
        by_column: dict[str, dict[str, str]] = {}
        for key, rule in keys.items():
            if rule.costly:
                by_column.setdefault(rule.columns[0], {})[key] = rule.broken
        scanned: dict[str, Any] = {}
        for column, broken in by_column.items():
            if repeats(self.connection, self.table.name, column):
                scanned |= scan_values(self.connection, self.table.name, column, broken)
        counts = {key: count(rule.broken) for key, rule in keys.items() if key not in scanned}
        try:
            return scanned | scan(self.connection, self.table.name, {**aggregates, **counts})
        except duckdb.Error:
            scanned |= scan(self.connection, self.table.name, aggregates)
        for key in counts:
            try:
                scanned |= scan(self.connection, self.table.name, {key: counts[key]})
            except duckdb.Error as error:
                self._cannot_run(keys[key], self._message(error))
        return scanned

    def _unique_sets(self) -> Iterator[_Unique]:
        for column, promised in self.contract.columns.items():
            for graded in promised.graded() if column in self.usable else ():
                if graded.key == "unique":
                    yield _Unique(graded.label, graded.severity, graded.owner or promised.owner, (column,), True)
        for key in self.contract.unique:
            if self._is_judged(key.columns, "unique"):
                yield _Unique("unique", key.severity, key.owner, key.columns, False)

    def _repeated(self, key: _Unique) -> Anomaly | None:
        """Count exactly what the hashes of the scan suggest; None if only two hashes met."""
        listed = ", ".join(map(quoted, key.columns))
        where = f"WHERE {quoted(key.columns[0])} IS NOT NULL" if key.ignores_nulls else ""
        grouped = f"SELECT count(*) AS n FROM {quoted(self.table.name)} {where} GROUP BY {listed} HAVING count(*) > 1"
        rows = int(self.connection.execute(f"SELECT coalesce(sum(n), 0) FROM ({grouped})").fetchall()[0][0])
        if rows == 0:
            return None
        shown = self._examples(f"{where} QUALIFY count(*) OVER (PARTITION BY {listed}) > 1", key.columns)
        observed, expected = f"{rows:,} rows that share them with another row", "values that no two rows share"
        return self._anomaly(key.rule, key.columns, key.severity, key.owner, expected, observed, rows, shown)

    def _freshness(self, newest: datetime | None) -> None:
        rule, as_of = self.contract.freshness, self.judge.as_of
        assert rule is not None and as_of is not None  # the scan has the newest time only with such a rule
        if newest is not None and newest.tzinfo is None:
            newest = newest.replace(tzinfo=UTC)
        if newest is not None and as_of - newest <= rule.within:
            self.findings.add(None)
            return
        hours = rule.within.total_seconds() / 3600
        within = f"{hours / 24:g} days" if hours >= 48 else f"{hours:g} hours"
        expected = f"a row at most {within} older than {as_of.isoformat()}"
        observed = f"{newest.isoformat()} as the newest" if newest else "no value up to then"
        if rule.column in self.sensitive:
            observed = "none"
        self._add("freshness", (rule.column,), rule.severity, rule.owner, expected, observed)

    def _ordering(self, order: Ordering) -> None:
        if not self._is_judged(order.by, "ordered"):
            return
        limit = self.judge.contract.examples
        rows, first = misplaced(self.connection, self.table, order.by, order.descending, order.strictly, limit)
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
        if key.snapshot == NOT_GIVEN:
            self._skip(", ".join(key.columns), "foreign_keys", f"{key.table} is not given", key.severity)
        if key.snapshot == NOT_GIVEN or not self._is_judged(key.columns, "foreign_keys"):
            return
        if key.snapshot and key.snapshot not in self.judge.elsewhere:
            observed = "no reference of this snapshot in the request"
        elif target is None or any(column not in target.types() or column in alike(target.types()) for column in to):
            observed = "no such table or column in the snapshot, or two whose names differ only in case"
        else:
            types = [(self.types[column], target.types()[there]) for column, there in zip(key.columns, to, strict=True)]
            unlike = [
                f"{kind_there}, which is never compared with {kind}" for kind, kind_there in types if kind != kind_there
            ]
            observed = unlike[0] if unlike else ""
        if observed or target is None:
            self._add("foreign_keys", key.columns, key.severity, key.owner, expected, observed)
            return
        columns = [f"{quoted(self.table.name)}.{quoted(column)}" for column in key.columns]
        pairs = " AND ".join(f"{_OTHER}.{quoted(there)} = {here}" for here, there in zip(columns, to, strict=True))
        valid = " AND ".join(f"{column} IS NOT NULL" for column in columns)
        where = f"WHERE {valid} AND NOT EXISTS (SELECT 1 FROM {quoted(target.name)} AS {_OTHER} WHERE {pairs})"
        try:
            rows = self.connection.execute(f"SELECT count(*) FROM {quoted(self.table.name)} {where}").fetchall()[0][0]
        except duckdb.Error as error:
            observed = f"that it cannot be evaluated: {self._message(error)}"
            self._add("foreign_keys", key.columns, key.severity, key.owner, expected, observed)
            return
        if rows <= key.tolerance * self.table.rows + 1e-9:
            self.findings.add(None)
            return
        shown, observed = self._examples(where, key.columns), f"{rows:,} rows without a match"
        self._add("foreign_keys", key.columns, key.severity, key.owner, expected, observed, rows, shown)

    def _distinct_share(self, column: str, rule: GradedRule, owner: str) -> None:
        if not rule.key.endswith("distinct_share"):
            return
        statistics = self.judge.statistics[self.table.name][column]
        valid = self.table.rows - statistics["nulls"]
        distinct = statistics.get("distinct", 0) / valid if valid else 0.0
        least = rule.key.startswith("min")
        if valid == 0 or (distinct >= rule.value if least else distinct <= rule.value):
            self.findings.add(None)
            return
        expected = f"at {'least' if least else 'most'} {rule.value:.4g} different values to a value"
        about = "" if statistics.get("exact", True) else "about "
        self._add(rule.label, (column,), rule.severity, rule.owner or owner, expected, f"{about}{distinct:.4g}")

    def _movement(self, column: str, rule: GradedRule, owner: str) -> None:
        """Judge how far a distribution moved from the baseline."""
        movement, baseline, table = MOVEMENTS.get(rule.key), self.judge.baseline, self.table.name
        if movement is None:
            return
        before = baseline.statistics.get(table, {}).get(column) if baseline else None
        now = baseline.rebinned.get(table, {}).get(column) if baseline else None
        if baseline is None or before is None or now is None:
            self._not_compared(column, rule.label, rule.severity)
            return
        rows = min(self.table.rows, baseline.rows.get(table, 0))
        distance = movement.measure(before, now)
        if rows < movement.least_rows:
            why = f"{movement.least_rows} rows are needed on both sides, and one has {rows}"
            self._skip(column, rule.label, why, rule.severity)
        elif math.isnan(distance):
            self._skip(column, rule.label, "one side has no values", rule.severity)
        elif distance <= rule.value:
            self.findings.add(None)
        else:
            expected = f"{movement.title} at most {rule.value:g}{movement.unit}"
            self._add(rule.label, (column,), rule.severity, rule.owner or owner, expected, f"{distance:.6g}")

    def _not_compared(self, column: str, rule: str, severity: str) -> None:
        why = "the baseline has no statistics of it" if self.judge.baseline else "there is no baseline"
        self._skip(column, rule, why, severity)

    def _skip(self, column: str, rule: str, why: str, severity: str) -> None:
        """List a rule that cannot be judged; it is an anomaly if the contract requires every rule to be judged."""
        place = f"{self.table.name}.{column}" if column else self.table.name
        self.findings.not_judged.append(f"{place}: {rule}, as {why}")
        if self.judge.contract.require_judged:
            expected, columns = f"{rule} to be judged", (column,) if column else ()
            self._add("not checked", columns, severity, "", expected, f"that {why}")

    def _is_judged(self, columns: Iterable[str], rule: str) -> bool:
        """Whether the table has the columns of a rule in the right type; if not, the rule is listed as not judged."""
        wrong = [column for column in columns if column not in self.usable]
        if wrong:
            self.findings.not_judged.append(
                f"{self.table.name}: {rule}, as {', '.join(wrong)} is missing, of another type, or there twice"
            )
        return not wrong

    def _cannot_run(self, rule: RowRule, why: str) -> None:
        observed = f"that it cannot be evaluated: {why}"
        self._add(rule.rule, rule.columns, rule.severity, rule.owner, rule.expected, observed)

    def _message(self, error: duckdb.Error) -> str:
        """DuckDB's message, or only its class if the message could hold a sensitive value."""
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
        listed, owner = ", ".join(columns), owner or self.owner
        return Anomaly(self.table.name, rule, listed, severity, owner, expected, observed, rows, shown)

    def _add(self, *parts: Any) -> None:
        self.findings.add(self._anomaly(*parts))
