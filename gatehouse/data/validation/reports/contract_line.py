"""The line of the contract behind an anomaly, and the line that would let this data pass."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from gatehouse.data.validation.anomalies import Anomaly
from gatehouse.reports.elements import isolated, shortened
from gatehouse.reports.format import Html, escape

Json = Mapping[str, Any]

_LISTS = ("unique", "foreign_keys", "expressions")
_EXTREMES = ("min", "max", "min_length", "max_length")
_MOVED = ("mean_shift", "spread_ratio", "psi", "kl", "linf", "js", "max_distinct_share")


@dataclass(frozen=True)
class Line:
    """One rule as YAML.

    Attributes:
        place: The keys that lead to it.
        written: The rule as it stands there, defaults left out.
        tolerant: The same rule so that this data keeps it, or is only warned of; empty where there is no such rule.
    """

    place: tuple[str, ...]
    written: str
    tolerant: str

    def html(self) -> Html:
        """The line for a page; a click on a rule selects the whole of it."""
        tolerant = f"<br>To let this data pass: {_code(self.tolerant)}" if self.tolerant else ""
        place = ".".join(isolated(shortened(part, 80)) for part in self.place)
        return Html(f"Contract, {place}: {_code(self.written)}{tolerant}")


def _code(text: str) -> str:
    return f'<code class="copy">{escape(shortened(text))}</code>'


def contract_line(contract: Json, one: Anomaly, rows: int, found: Json) -> Line | None:
    """The line behind an anomaly; None where it breaks nothing that somebody wrote.

    Args:
        contract: What was promised, as it was published: defaults left out.
        one: The anomaly.
        rows: Rows of its table.
        found: Statistics of its column, empty for none. Of a sensitive column no line is shown: rules hold values.
    """
    table = contract["tables"].get(one.table)
    if table is None or found.get("sensitive"):
        return None
    key = one.rule.removeprefix("warn.").split(" ")[0]
    key = {"expression": "expressions", "column": "type"}.get(key, key)
    place, where = ["tables", one.table], table
    if key in _LISTS and key in table and key not in table["columns"].get(one.column, {}):
        named = [each for each in table[key] if one.rule.endswith(each.get("name", "")) and _is_of(each, one)]
        return _line([*place, key], "", named[0], one, rows, found) if len(named) == 1 else None
    if one.column in table["columns"] and key not in ("freshness", "ordered"):
        place, where = [*place, "columns", one.column], table["columns"][one.column]
    if one.rule.startswith("warn."):
        place, where = [*place, "warn"], where.get("warn", {})
    if key not in where:
        return None
    rule = where[key] if isinstance(where[key], dict) else {"value": where[key]}
    return _line(place, key, rule, one, rows, found)


def _is_of(rule: Json, one: Anomaly) -> bool:
    """Whether a rule on several columns is the one on those that the anomaly names."""
    return "columns" not in rule or ", ".join(rule["columns"]) == one.column


def _line(place: list[str], key: str, rule: Json, one: Anomaly, rows: int, found: Json) -> Line:
    widened = _widened(key, rule, one, rows, found)
    if widened is None and one.severity == "fail":
        widened = key, {**rule, "severity": "warn"}
    return Line(tuple(place), _yaml(key, rule), _yaml(*widened) if widened else "")


def _widened(key: str, rule: Json, one: Anomaly, rows: int, found: Json) -> tuple[str, Json] | None:
    """The rule with a bound or a tolerance that this data keeps; None where it has none."""
    broken = (one.rows or 0) / rows if rows else 0.0
    if key in ("nullable", "completeness") and broken:
        return "completeness", {**rule, "value": round(1 - _rounded(broken), 9)}
    if key in ("", "expressions", "foreign_keys") and "unique" not in one.rule and 0 < broken < 0.99:
        return key, {**rule, "tolerance": _rounded(broken)}
    if key in _EXTREMES and key in found:
        outside = found[key] < rule["value"] if key.startswith("min") else found[key] > rule["value"]
        return (key, {**rule, "value": found[key]}) if outside else None  # else it is a NaN that broke it
    if key in _MOVED or key == "min_distinct_share":
        moved, up = float(one.observed.removeprefix("about ")), math.ceil if key in _MOVED else math.floor
        return (key, {**rule, "value": _rounded(moved, up)}) if 0 < moved < math.inf else None
    if key in ("min_rows", "max_rows"):
        return key, {**rule, "value": rows}
    if key == "extra_columns":
        return (key, {"value": "warn"}) if one.severity == "fail" else None
    return None


def _rounded(value: float, up: Callable[[float], int] = math.ceil) -> float:
    """Two digits of it, so that what was found is within."""
    digits = 1 - math.floor(math.log10(value))
    return round(up(round(value * 10.0**digits, 6)) / 10.0**digits, digits)


def _yaml(key: str, rule: Json) -> str:
    """A rule on one line: under its key, or as an item of a list."""
    body = rule["value"] if rule.keys() == {"value"} else dict(rule)
    text = yaml.safe_dump({key: body} if key else body, default_flow_style=True, width=10**9, allow_unicode=True)
    return text.strip()[1:-1] if key else f"- {text.strip()}"
