"""Turns the rules of a table's contract that can be judged row by row into SQL conditions."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gatehouse.components.validation.contract import ColumnContract, ColumnRules, TableContract
from gatehouse.components.validation.tables import literal, name, text


@dataclass(frozen=True)
class RowRule:
    """A rule that each row keeps or breaks.

    Attributes:
        rule, columns, severity, owner, expected: As in `Anomaly`.
        broken: SQL condition that holds for a row that breaks the rule.
        tolerance: Share of rows that may break it.
        sql: The user's own SQL in it, which may not run; empty for the rules that we write.
    """

    rule: str
    columns: tuple[str, ...]
    severity: str
    owner: str
    expected: str
    broken: str
    tolerance: float = 0.0
    sql: str = ""


def row_rules(contract: TableContract, present: Sequence[str], usable: Sequence[str]) -> Iterator[RowRule]:
    """All rules of a table that are judged row by row.

    Args:
        contract: What the table promises.
        present: Columns that the table has.
        usable: Those of them that have the type that the contract states.
    """
    for column, promised in contract.columns.items():
        if column in usable:
            yield from _column_rules(column, promised, promised.owner or contract.owner)
    for expression in contract.expressions:
        yield RowRule(
            rule=f"expression {expression.name}",
            columns=tuple(column for column in present if re.search(rf"\b{re.escape(column)}\b", expression.sql)),
            severity=expression.severity,
            owner=expression.owner or contract.owner,
            expected=" ".join(expression.sql.split()),
            broken=f"NOT ({expression.sql}\n)",
            tolerance=expression.tolerance,
            sql=expression.sql,
        )


def _column_rules(column: str, promised: ColumnContract, owner: str) -> Iterator[RowRule]:
    if not promised.nullable:
        yield RowRule("nullable", (column,), "fail", owner, "no null", f"{name(column)} IS NULL")
    for prefix, rules in promised.graded():
        for rule, expected, broken in _value_rules(column, promised.type, rules):
            yield RowRule(f"{prefix}{rule}", (column,), "warn" if prefix else "fail", owner, expected, broken)
        if rules.completeness is not None:
            share = 1 - rules.completeness
            expected = f"at least {rules.completeness:.2%} of the rows not null"
            broken = f"{name(column)} IS NULL"
            severity = "warn" if prefix else "fail"
            yield RowRule(f"{prefix}completeness", (column,), severity, owner, expected, broken, share)


def _value_rules(column: str, kind: str, rules: ColumnRules) -> Iterator[tuple[str, str, str]]:
    quoted = name(column)
    not_a_number = f" OR isnan({quoted})" if kind == "double" else ""
    if rules.min is not None:
        yield "min", f"at least {rules.min}", f"({quoted} < {literal(rules.min)}{not_a_number})"
    if rules.max is not None:
        yield "max", f"at most {rules.max}", f"({quoted} > {literal(rules.max)}{not_a_number})"
    if rules.allowed is not None:
        listed = ", ".join(str(value) for value in rules.allowed[:20]) + (", …" if len(rules.allowed) > 20 else "")
        values = ", ".join(literal(value) for value in rules.allowed)
        yield "allowed", f"one of {listed}", f"{quoted} NOT IN ({values})"
    if rules.pattern is not None:
        broken = f"NOT regexp_full_match({quoted}, {text(rules.pattern)})"
        yield "pattern", f"text like {rules.pattern}", broken
