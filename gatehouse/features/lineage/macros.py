"""Replaces calls of a repository's macros by their bodies, so that the lineage sees what the macros read."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import duckdb
import sqlglot
from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import SqlglotError

from gatehouse.features.definitions.sql_text import code

DIALECT = "duckdb"
_CALLED = re.compile(r"(\w+)\"?\s*\(")
_CREATED = re.compile(r"CREATE\b[\w\s]*?\b(?:MACRO|FUNCTION)\s+(?:IF\s+NOT\s+EXISTS\s+)?\"?(\w+)", re.IGNORECASE)


@dataclass
class Macro:
    """A macro and its body; the body is None where it cannot be followed."""

    text: str
    parameters: list[str] = field(default_factory=list)
    body: exp.Expr | None = None


def macros_of(text: str) -> dict[str, Macro]:
    """The macros of `macros.sql`, by name in lower case."""
    found: dict[str, Macro] = {}
    for each in duckdb.extract_statements(text):
        query = code(each.query).rstrip("; ")
        named = _CREATED.match(query)
        if named is None:
            continue
        name = named[1].lower()
        # Where sqlglot knows a function of this name, it changes the order of the arguments.
        known = name in found or name.upper() in DuckDB.Parser.FUNCTIONS
        found[name] = Macro(query) if known else _macro(query)
    return found


def _macro(text: str) -> Macro:
    try:
        statement = sqlglot.parse_one(text, dialect=DIALECT)
    except SqlglotError:
        return Macro(text)
    if not isinstance(statement, exp.Create) or not isinstance(statement.this, exp.UserDefinedFunction):
        return Macro(text)
    return Macro(text, [each.name.lower() for each in statement.this.expressions], statement.expression)


def require_known_macros(text: str, macros: Mapping[str, Macro]) -> None:
    """Refuse a query that calls, directly or through another macro, a macro whose body cannot replace its call.

    Raises:
        SqlglotError: naming the macro.
    """
    seen: set[str] = set()
    pending = [text]
    while pending:
        called = {name.lower() for name in _CALLED.findall(code(pending.pop()))} & macros.keys() - seen
        for name in sorted(called):
            if macros[name].body is None:
                raise SqlglotError(
                    f"the macro {name} has parameters with defaults, several forms, or the name of a function of DuckDB"
                )
            pending.append(macros[name].text)
        seen |= called


def expanded(tree: exp.Expr, macros: Mapping[str, Macro]) -> exp.Expr:
    """The query with each macro call replaced by the macro's body.

    Raises:
        SqlglotError: if a macro is called with another number of arguments than it has parameters.
    """

    def expand(node: exp.Expr) -> exp.Expr:
        table = isinstance(node, exp.Table)
        call = node.this if isinstance(node, exp.Table) else node
        macro = macros.get(call.name.lower()) if isinstance(call, exp.Anonymous) else None
        if macro is None or macro.body is None:
            return node
        if len(macro.parameters) != len(call.expressions):
            raise SqlglotError(f"the macro {call.name}: expected {len(macro.parameters)} arguments")
        given = dict(zip(macro.parameters, call.expressions, strict=True))

        def fill(part: exp.Expr) -> exp.Expr:
            if isinstance(part, exp.Column) and not part.table and part.name.lower() in given:
                return exp.Paren(this=given[part.name.lower()].copy())
            return part

        body = macro.body.copy().transform(fill)
        if table:
            alias = node.args.get("alias") or exp.TableAlias(this=exp.to_identifier(call.name))
            return exp.Subquery(this=body, alias=alias.copy()).transform(expand)
        return exp.Paren(this=body).transform(expand)

    return tree.transform(expand)
