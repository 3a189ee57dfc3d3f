"""Turns the rules of a table's contract that are judged row by row into SQL conditions."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import duckdb

from gatehouse.data.validation.contract import TableContract
from gatehouse.data.validation.tables import literal
from gatehouse.errors import ConfigurationError
from gatehouse.store.database import quoted, text_literal
from gatehouse.store.repeatable_sql import repeatable

_SHOWN = 20


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
