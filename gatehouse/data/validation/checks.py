"""Judges the tables of a snapshot against a contract: rules on rows as SQL conditions, in one pass over each table."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
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
    Freshness,
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
class Promise:
    """One rule as an anomaly names it."""

    rule: str
    columns: tuple[str, ...]
    severity: str
    owner: str
    expected: str


@dataclass(frozen=True)
class RowRule(Promise):
    """A rule that each row keeps or breaks.

    `broken` is a SQL condition that holds for a row that breaks it, `sql` the part of it that the user wrote. A rule is
    `costly` if judging a value takes longer than grouping the rows by value.
    """

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
            expected=" ".join(expression.sql.split()) + _in_all_but(expression.tolerance),
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


def _in_all_but(tolerance: float) -> str:
    return f" in all but {share(tolerance)} of the rows" if tolerance else ""


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


def rule_counts(connection: duckdb.DuckDBPyConnection, table: Table, contract: Contract) -> dict[str, int]:
    """How many rows of some files of a table break each rule on rows, by the key of the rule.

    A rule that fails on some row is left out, and so is one that can look at other rows.
    """
    judge = Judge(connection, {table.name: table}, contract, None, {}, None, Findings())
    of_table = _TableJudge(judge, table, contract.tables[table.name])
    alone = {key: rule for key, rule in of_table.rules().items() if not _QUERY.search(rule.sql)}
    return of_table.scan(alone)


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
        rules = self.rules()
        broken = self.judge.broken.get(self.table.name, {})
        counted = {**broken, **self.scan({key: rule for key, rule in rules.items() if key not in broken})}
        self._row_counts()
        for key, rule in rules.items():
            if key in counted:
                observed = f"{counted[key]:,} of {self.table.rows:,} rows that break it"
                self._add_rows(rule, counted[key], observed, f"WHERE {rule.broken}", rule.tolerance)
        distinct = "values that no two rows share"
        for column, graded in self._graded("unique"):
            promise = Promise(graded.label, (column,), graded.severity, graded.owner, distinct)
            self._unique(promise, f"WHERE {quoted(column)} IS NOT NULL")
        for unique in self.contract.unique:
            if self._is_judged(unique.columns, "unique"):
                self._unique(Promise("unique", unique.columns, unique.severity, unique.owner, distinct), "")
        if self.contract.freshness is not None:
            self._freshness(self.contract.freshness)
        if self.contract.ordered is not None:
            self._ordering(self.contract.ordered)
        for foreign_key in self.contract.foreign_keys:
            self._foreign_key(foreign_key)
        for column, graded in self._graded("min_distinct_share", "max_distinct_share"):
            self._distinct_share(column, graded)
        for column, graded in self._graded(*MOVEMENTS):
            self._movement(column, graded)

    def _graded(self, *keys: str) -> Iterator[tuple[str, GradedRule]]:
        """The rules with one of the keys on columns of the right type, each with the owner of its column."""
        for column, promised in self.contract.columns.items():
            for rule in promised.graded() if column in self.usable else ():
                if rule.key in keys:
                    yield column, replace(rule, owner=rule.owner or promised.owner)

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
            if column in self.usable:
                self.findings.add(None)
                continue
            rule, expected, observed = "type", str(kind.value), actual or ""
            if actual is None:
                rule, expected, observed = "column", f"a column of type {kind.value}", f"only {', '.join(self.types)}"
            elif actual == kind.value:
                rule, expected, observed = "column", "a name of its own", f"also {self.alike[column]}"
            self._add(Promise(rule, (column,), severity, owner, expected), observed)
            self.findings.not_judged.append(
                f"{self.table.name}.{column}: its values, as there is no one {kind.value} column of this name"
            )
        policy = self.contract.extra_columns
        for column in self.types if policy != "allow" else ():
            if column not in self.contract.columns:
                self._add(Promise("extra_columns", (column,), policy, "", "no such column"), self.types[column])

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
            self._add(Promise(key, (), rule.severity or "fail", rule.owner, expected), f"{rows:,} rows")

    def scan(self, rules: Mapping[str, RowRule]) -> dict[str, int]:
        """Count the rows that break each rule, in one scan; if a rule fails on some row, scan again to find which."""
        # Of columns whose values repeat, each value is judged once.
        by_column: dict[str, dict[str, str]] = {}
        for key, rule in rules.items():
            if rule.costly:
                by_column.setdefault(rule.columns[0], {})[key] = rule.broken
        counted: dict[str, int] = {}
        for column, broken in by_column.items():
            if repeats(self.connection, self.table.name, column):
                counted |= scan_values(self.connection, self.table.name, column, broken)
        counts = {key: count(rule.broken) for key, rule in rules.items() if key not in counted}
        with suppress(duckdb.Error):
            return counted | scan(self.connection, self.table.name, counts)
        for key in counts:
            try:
                counted |= scan(self.connection, self.table.name, {key: counts[key]})
            except duckdb.Error as error:
                self._cannot_run(rules[key], self._message(error))
        return counted

    def _unique(self, promise: Promise, where: str) -> None:
        """Judge that no two of the rows chosen by `where` share their values."""
        listed = ", ".join(map(quoted, promise.columns))
        grouped = f"SELECT count(*) AS n FROM {quoted(self.table.name)} {where} GROUP BY {listed} HAVING count(*) > 1"
        rows = int(self._value(f"SELECT coalesce(sum(n), 0) FROM ({grouped})"))
        shared = f"{where} QUALIFY count(*) OVER (PARTITION BY {listed}) > 1"
        self._add_rows(promise, rows, f"{rows:,} rows that share them with another row", shared)

    def _freshness(self, rule: Freshness) -> None:
        as_of, column = self.judge.as_of, quoted(rule.column)
        if as_of is None:
            self._skip("", "freshness", "no table of the snapshot has event times", rule.severity)
        if as_of is None or not self._is_judged((rule.column,), "freshness"):
            return
        # A time after the snapshot's does not show how late the data is.
        newest = self._value(f"SELECT max({column}) FROM {quoted(self.table.name)} WHERE {column} <= {literal(as_of)}")
        if newest is not None and newest.tzinfo is None:
            newest = newest.replace(tzinfo=UTC)
        if newest is not None and as_of - newest <= rule.within:
            self.findings.add(None)
            return
        hours = rule.within.total_seconds() / 3600
        within = f"{hours / 24:g} days" if hours >= 48 else f"{hours:g} hours"
        expected = f"a row at most {within} older than {as_of.isoformat()}"
        observed = f"{newest.isoformat()} as the newest" if newest else "no value up to then"
        observed = "none" if rule.column in self.sensitive else observed
        self._add(Promise("freshness", (rule.column,), rule.severity, rule.owner, expected), observed)

    def _ordering(self, order: Ordering) -> None:
        if not self._is_judged(order.by, "ordered"):
            return
        limit = self.judge.contract.examples
        rows, first = misplaced(self.connection, self.table, order.by, order.descending, order.strictly, limit)
        direction = "falling" if order.descending else "rising"
        expected = f"rows in {'strictly ' if order.strictly else ''}{direction} order"
        observed = f"{rows:,} row{'s' * (rows != 1)} out of order"
        shown = f"WHERE gatehouse_row IN ({', '.join(map(str, first)) or 'NULL'})"
        self._add_rows(Promise("ordered", order.by, order.severity, order.owner, expected), rows, observed, shown)

    def _foreign_key(self, key: ForeignKey) -> None:
        tables = self.judge.elsewhere.get(key.snapshot, {}) if key.snapshot else self.judge.tables
        target, to = tables.get(key.table), key.to or key.columns
        place = f"{key.table} of {key.snapshot}" if key.snapshot else key.table
        expected = f"values of {place}({', '.join(to)}){_in_all_but(key.tolerance)}"
        promise = Promise("foreign_keys", key.columns, key.severity, key.owner, expected)
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
            self._add(promise, observed)
            return
        columns = [f"{quoted(self.table.name)}.{quoted(column)}" for column in key.columns]
        pairs = " AND ".join(f"{_OTHER}.{quoted(there)} = {here}" for here, there in zip(columns, to, strict=True))
        valid = " AND ".join(f"{column} IS NOT NULL" for column in columns)
        where = f"WHERE {valid} AND NOT EXISTS (SELECT 1 FROM {quoted(target.name)} AS {_OTHER} WHERE {pairs})"
        try:
            rows = int(self._value(f"SELECT count(*) FROM {quoted(self.table.name)} {where}"))
        except duckdb.Error as error:
            self._cannot_run(promise, self._message(error))
            return
        self._add_rows(promise, rows, f"{rows:,} rows without a match", where, key.tolerance)

    def _distinct_share(self, column: str, rule: GradedRule) -> None:
        statistics = self.judge.statistics[self.table.name][column]
        valid = self.table.rows - statistics["nulls"]
        distinct = statistics.get("distinct", 0) / valid if valid else 0.0
        least = rule.key.startswith("min")
        if valid == 0 or (distinct >= rule.value if least else distinct <= rule.value):
            self.findings.add(None)
            return
        expected = f"at {'least' if least else 'most'} {rule.value:.4g} different values to a value"
        about = "" if statistics.get("exact", True) else "about "
        self._add(Promise(rule.label, (column,), rule.severity, rule.owner, expected), f"{about}{distinct:.4g}")

    def _movement(self, column: str, rule: GradedRule) -> None:
        """Judge how far a distribution moved from the baseline."""
        movement, baseline, table = MOVEMENTS[rule.key], self.judge.baseline, self.table.name
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
            self._add(Promise(rule.label, (column,), rule.severity, rule.owner, expected), f"{distance:.6g}")

    def _not_compared(self, column: str, rule: str, severity: str) -> None:
        why = "the baseline has no statistics of it" if self.judge.baseline else "there is no baseline"
        self._skip(column, rule, why, severity)

    def _skip(self, column: str, rule: str, why: str, severity: str) -> None:
        """List a rule that cannot be judged; it is an anomaly if the contract requires every rule to be judged."""
        place = f"{self.table.name}.{column}" if column else self.table.name
        self.findings.not_judged.append(f"{place}: {rule}, as {why}")
        if self.judge.contract.require_judged:
            columns = (column,) if column else ()
            self._add(Promise("not checked", columns, severity, "", f"{rule} to be judged"), f"that {why}")

    def _is_judged(self, columns: Iterable[str], rule: str) -> bool:
        """Whether the table has the columns of a rule in the right type; if not, the rule is listed as not judged."""
        wrong = [column for column in columns if column not in self.usable]
        if wrong:
            self.findings.not_judged.append(
                f"{self.table.name}: {rule}, as {', '.join(wrong)} is missing, of another type, or there twice"
            )
        return not wrong

    def _cannot_run(self, promise: Promise, why: str) -> None:
        self._add(promise, f"that it cannot be evaluated: {why}")

    def _message(self, error: duckdb.Error) -> str:
        """DuckDB's message, or only its class if the message could hold a sensitive value."""
        if isinstance(error, duckdb.OutOfMemoryException):
            raise error
        hidden = any(self.judge.contract.sensitive(table) for table in self.judge.contract.tables)
        return type(error).__name__ if hidden or self.judge.elsewhere else str(error).splitlines()[0]

    def _value(self, query: str) -> Any:
        return self.connection.execute(query).fetchall()[0][0]

    def _add_rows(self, promise: Promise, rows: int, observed: str, condition: str, tolerance: float = 0.0) -> None:
        """Add how many rows break a rule, and the first rows for which a condition, `WHERE …` or `QUALIFY …`, holds."""
        if rows <= tolerance * self.table.rows + 1e-9:
            self.findings.add(None)
            return
        first = next(iter(self.contract.unique), None)
        key = [column for column in first.columns if column in self.types] if first else []
        shown, limit = [*key, *promise.columns], self.judge.contract.examples
        self._add(
            promise, observed, rows, examples(self.connection, self.table, condition, shown, self.sensitive, limit)
        )

    def _add(
        self, promise: Promise, observed: str, rows: int | None = None, shown: tuple[dict[str, Any], ...] = ()
    ) -> None:
        listed, owner = ", ".join(promise.columns), promise.owner or self.owner
        self.findings.add(
            Anomaly(
                self.table.name, promise.rule, listed, promise.severity, owner, promise.expected, observed, rows, shown
            )
        )
