"""Finds runs by a condition of SQL, which DuckDB evaluates: `learning_rate < 1e-3 ORDER BY log_loss LIMIT 5`.

A query is what follows WHERE in SQL: comparisons, BETWEEN, IN, LIKE, ILIKE, IS NULL, AND, OR, NOT, then ORDER BY and
LIMIT. It may neither call functions nor read anything else, so that a server can evaluate queries of its users.

A name is an attribute of the run, a parameter, a metric or a tag, looked up in this order. The prefixes `params.`,
`metrics.` and `tags.` select one of them, and double quotes allow any character. A parameter in a group can also be
named by its last part: `learning_rate` is `optimizer.learning_rate`, unless another group has one too. A name whose
values are numbers in some run compares as a number, however MLflow stores it. A run without a name meets no predicate
on it but IS NULL, and comes last in every order.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from gatehouse.errors import ConfigurationError
from gatehouse.store.database import connect

if TYPE_CHECKING:
    import pyarrow as pa

ATTRIBUTES = ("id", "name", "experiment", "status", "user", "started", "ended", "duration")
_TIMES = ("started", "ended")
_HEAD = "SELECT number FROM runs"
_ALLOWED = ("BETWEEN", "CAST", "COLUMN_REF", "COMPARISON", "CONJUNCTION", "CONSTANT", "OPERATOR")
_FUNCTIONS = ("~~", "!~~", "~~*", "!~~*")
"""How DuckDB writes LIKE, NOT LIKE, ILIKE and NOT ILIKE."""


class Values(Protocol):
    """The values of a run that a query can use: attributes by name, and MLflow's three dictionaries."""

    @property
    def attributes(self) -> Mapping[str, Any]: ...  # noqa: D102 - a field
    @property
    def params(self) -> Mapping[str, str]: ...  # noqa: D102 - a field
    @property
    def metrics(self) -> Mapping[str, float]: ...  # noqa: D102 - a field
    @property
    def tags(self) -> Mapping[str, str]: ...  # noqa: D102 - a field


Run = TypeVar("Run", bound=Values)


@dataclass(frozen=True)
class Query:
    """A parsed query: its text, its names, and DuckDB's syntax tree, in which the third name is the column `c2`."""

    text: str
    names: tuple[str, ...]
    statement: str

    def select(self, runs: Sequence[Run]) -> list[Run]:
        """The matching runs in the query's order. Raises ConfigurationError if values cannot be compared."""
        import duckdb
        import pyarrow as pa

        columns: dict[str, pa.Array] = {"number": pa.array(range(len(runs)), pa.int64())}
        for number, name in enumerate(self.names):
            columns[f"c{number}"] = _column(name, [lookup(run, name) for run in runs])
        with connect(threads=1) as connection:
            connection.execute("SET TimeZone = 'UTC'")
            connection.register("runs", pa.table(columns))
            try:
                (sql,) = connection.execute("SELECT json_deserialize_sql(?)", [self.statement]).fetchall()[0]
                numbers = connection.execute(sql).fetchall()
            except duckdb.Error as error:
                raise ConfigurationError(f"query: {str(error).partition(chr(10))[0]}") from error
        return [runs[number] for (number,) in numbers]


def parse(text: str) -> Query:
    """Parse a query. Raises ConfigurationError, with the column, if it is invalid or does more than compare values."""
    clause = "" if not text.strip() or re.match(r"\s*(order\s+by|limit)\b", text, re.IGNORECASE) else "WHERE"
    head = f"{_HEAD} {clause} "
    with connect(threads=1) as connection:
        (serialized,) = connection.execute("SELECT json_serialize_sql(?)", [head + text]).fetchall()[0]
    tree = json.loads(serialized)
    if tree["error"]:
        at = int(tree.get("position") or len(head + text)) - len(head)
        raise _error(text, at, tree["error_message"])
    node = tree["statements"][0]["node"]
    plain = json.loads(json.dumps(node))
    for part in ("where_clause", "modifiers"):
        plain.pop(part, None)
    # Without its condition, order and limit, a query has to be the one that every query begins with.
    only_selects = (
        plain["type"] == "SELECT_NODE"
        and plain["from_table"]["type"] == "BASE_TABLE"
        and [item["class"] for item in plain["select_list"]] == ["COLUMN_REF"]
        and not any(plain.get(part) for part in ("group_expressions", "having", "qualify", "sample"))
        and not plain["cte_map"]["map"]
    )
    if len(tree["statements"]) > 1 or not only_selects:
        raise _error(text, 0, "expected a condition, ORDER BY and LIMIT alone")
    limits = [modifier for modifier in node["modifiers"] if modifier["type"] == "LIMIT_MODIFIER"]
    if any(limit["limit"]["class"] != "CONSTANT" or limit["offset"] for limit in limits):
        raise _error(text, text.lower().rfind("limit"), "expected a whole number after LIMIT")
    names: dict[str, int] = {}
    for expression in _expressions([node.get("where_clause"), node.get("modifiers")]):
        kind = expression["class"]
        if kind not in _ALLOWED and not (kind == "FUNCTION" and expression["function_name"] in _FUNCTIONS):
            raise _error(
                text, int(expression["query_location"]) - len(head), "expected a comparison of names and values"
            )
        if kind == "COLUMN_REF":
            number = names.setdefault(".".join(expression["column_names"]), len(names))
            expression["column_names"] = [f"c{number}"]
    # Ties keep the order of the runs: the number of the run is the last order.
    orders = [modifier for modifier in node["modifiers"] if modifier["type"] == "ORDER_MODIFIER"]
    if not orders:
        orders = [{"type": "ORDER_MODIFIER", "orders": []}]
        node["modifiers"].insert(0, orders[0])
    orders[0]["orders"].append({"type": "ASCENDING", "expression": dict(node["select_list"][0])})
    for order in orders[0]["orders"]:
        order["null_order"] = "NULLS_LAST"
    return Query(text, tuple(names), json.dumps(tree))


def _expressions(tree: Any) -> Iterator[dict[str, Any]]:
    """Every expression in a part of DuckDB's syntax tree."""
    if isinstance(tree, dict):
        if "class" in tree:
            if tree["class"] == "TYPE":
                return
            yield tree
        for value in tree.values():
            yield from _expressions(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from _expressions(value)


def _error(text: str, at: int, message: str) -> ConfigurationError:
    line = "".join(" " if character.isspace() else character for character in text)
    at = min(max(at, 0), len(line))
    return ConfigurationError(f"query, column {at + 1}: {message}.\n  {line}\n  {' ' * at}^")


def _column(name: str, values: Sequence[Any]) -> "pa.Array":
    """The values of a name in all runs: moments, or numbers if one of them is a number, else texts."""
    import pyarrow as pa

    numbers = [number_of(value) for value in values]
    if name in _TIMES:
        micros = [None if number is None else round(number * 1e6) for number in numbers]
        return pa.array(micros, pa.timestamp("us", tz="UTC"))
    if all(value is None for value in values):
        return pa.nulls(len(values))
    if any(number is not None for number in numbers):
        return pa.array(numbers, pa.float64())
    return pa.array([None if value is None else str(value) for value in values], pa.string())


def lookup(run: Values, name: str) -> Any:
    """The value of a name in a run: text, a number, or None.

    Raises ConfigurationError if the name is the last part of several parameters, such as `rate` for `a.rate` and
    `b.rate`.
    """
    kind, _, rest = name.partition(".")
    groups = {"params": run.params, "metrics": run.metrics, "tags": run.tags}
    if kind in groups and rest:
        return _parameter(run, rest) if kind == "params" else groups[kind].get(rest)
    if run.attributes.get(name) is not None:
        return run.attributes[name]
    parameter = _parameter(run, name)
    return parameter if parameter is not None else run.metrics.get(name, run.tags.get(name))


def _parameter(run: Values, name: str) -> str | None:
    """The parameter with this name, or with this last part: `learning_rate` finds `optimizer.learning_rate`."""
    if run.params.get(name) is not None:
        return run.params[name]
    grouped = [parameter for parameter in run.params if parameter.count(".") == 1 and parameter.endswith(f".{name}")]
    if len(grouped) > 1:
        raise ConfigurationError(f"{name} may be {' or '.join(sorted(grouped))}: name one of them.")
    return run.params[grouped[0]] if grouped else None


def number_of(value: Any) -> float | None:
    """The number that a value is, or that its whole text spells; None for everything else, including NaN."""
    if isinstance(value, bool) or value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return None if math.isnan(number) else number
