"""The query language for runs: `learning_rate < 1e-3 and status = finished order by log_loss limit 5`.

    query      := [condition] [ORDER BY name [ASC|DESC] {, name [ASC|DESC]}] [LIMIT whole]
    condition  := condition OR condition | condition AND condition | NOT condition | ( condition ) | predicate
    predicate  := name (= | == | != | <> | < | <= | > | >=) value
                | name [NOT] BETWEEN value AND value | name [NOT] IN ( value {, value} )
                | name [NOT] LIKE value | name IS [NOT] NULL

A name is an attribute of the run (`ATTRIBUTES`), a parameter, a metric or a tag, looked up in this order. The prefixes
`params.`, `metrics.` and `tags.` select one of them, and backticks allow any character. A parameter in a group can also
be named by its last part: `learning_rate` is `optimizer.learning_rate`, unless another group has one too. Values are
numbers, quoted text, or single words. If both sides are numbers, they compare as exact numbers, however MLflow stores
them. Otherwise, equality and LIKE compare text; greater and less compare only quoted text. A run without a name meets
no predicate on it but IS NULL, and NOT does not change that (SQL's three-valued logic). In both sort orders it comes
last.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation, Overflow
from typing import Any, NoReturn, Protocol, TypeVar

from gatehouse.errors import ConfigurationError

ATTRIBUTES = ("id", "name", "experiment", "status", "user", "started", "ended", "duration")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_TOKEN = re.compile(
    r"""\s*(?:(?P<operator><=|>=|!=|<>|==|[=<>(),])
        |(?P<text>'(?:[^']|'')*'|"(?:[^"]|"")*")
        |(?P<quoted>(?:(?:params|metrics|tags)\.)?`[^`]+`)
        |(?P<word>[^\s=<>!(),'"`]+))""",
    re.VERBOSE,
)
_WORDS = frozenset(["and", "or", "not", "between", "in", "like", "is", "null", "order", "by", "asc", "desc", "limit"])


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
Condition = Callable[[Values], bool | None]


@dataclass(frozen=True)
class Literal:
    """A value in a query: its text, its number if it is one, and whether it was quoted."""

    text: str
    number: Decimal | None
    quoted: bool


@dataclass(frozen=True)
class Query:
    """A parsed query.

    Attributes:
        condition: Whether a run matches: true, false, or None if it lacks a name in the query.
        order: Names to order by, each with whether the order is descending.
        limit: Maximum number of runs; None for all.
        names: All names in the query.
    """

    condition: Condition | None
    order: tuple[tuple[str, bool], ...]
    limit: int | None
    names: tuple[str, ...]

    def select(self, runs: Iterable[Run]) -> list[Run]:
        """The runs that match the query, in its order; ties keep the given order."""
        found = [run for run in runs if self.condition is None or self.condition(run)]
        for name, descending in reversed(self.order):
            found = _ordered(found, name, descending)
        return found[: self.limit]


def parse(text: str) -> Query:
    """Parse a query.

    Raises:
        ConfigurationError: if the query is invalid; the message gives the column.
    """
    return _Parser(text).query()


def lookup(run: Values, name: str) -> Any:
    """The value of a name in a run: text, a number, or None.

    Raises:
        ConfigurationError: if the name is the last part of several parameters, such as `rate` for `a.rate` and
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
    found = [each for each in run.params if each.count(".") == 1 and each.endswith(f".{name}")]
    if len(found) > 1:
        raise ConfigurationError(f"{name} may be {' or '.join(sorted(found))}: name one of them.")
    return run.params[found[0]] if found else None


def number_of(value: Any) -> Decimal | None:
    """The exact number that a value is, or that its whole text spells.

    None for everything else, including NaN and exponents beyond the range of computers.
    """
    if isinstance(value, bool) or value is None:
        return None
    text = value if isinstance(value, str) else repr(value)
    with suppress(InvalidOperation):
        return Decimal(text) if _NUMBER.fullmatch(text) else _infinite(value)
    return None


def _infinite(value: Any) -> Decimal | None:
    infinite = isinstance(value, float) and value in (float("inf"), float("-inf"))
    return Decimal(repr(value)) if infinite else None


def _ordered(runs: Sequence[Run], name: str, descending: bool) -> list[Run]:
    """Numbers, then text, then missing values and NaN; `descending` reverses the order within numbers and text."""
    numbers: list[tuple[Decimal, Run]] = []
    texts: list[tuple[str, Run]] = []
    missing: list[Run] = []
    for run in runs:
        value = lookup(run, name)
        number = number_of(value)
        if number is not None:
            numbers.append((number, run))
        elif isinstance(value, str):
            texts.append((value, run))
        else:
            missing.append(run)
    numbers.sort(key=lambda pair: pair[0], reverse=descending)
    texts.sort(key=lambda pair: pair[0], reverse=descending)
    return [*(run for _, run in numbers), *(run for _, run in texts), *missing]


class _Parser:
    """Recursive-descent parser over the tokens; each method reads one rule of the grammar."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(_tokens(text))
        self._at = 0
        self._names: list[str] = []

    def query(self) -> Query:
        condition = None if self._sees("order", "limit", "") else self._or()
        order = self._order_by()
        limit = self._limit()
        if self._tokens[self._at][0] != "end":
            self._fail("AND, OR, ORDER BY, LIMIT or the end")
        return Query(condition, order, limit, tuple(dict.fromkeys(self._names)))

    def _order_by(self) -> tuple[tuple[str, bool], ...]:
        if not self._take("order"):
            return ()
        self._expect("by")
        keys = []
        while True:
            name = self._name()
            descending = self._take("desc")
            if not descending:
                self._take("asc")
            keys.append((name, descending))
            if not self._take(","):
                return tuple(keys)

    def _limit(self) -> int | None:
        if not self._take("limit"):
            return None
        if not self._tokens[self._at][1].isdecimal():
            self._fail("a whole number after LIMIT")
        return int(self._next()[1])

    def _or(self) -> Condition:
        parts = [self._and()]
        while self._take("or"):
            parts.append(self._and())
        return parts[0] if len(parts) == 1 else lambda run: _either([part(run) for part in parts])

    def _and(self) -> Condition:
        parts = [self._not()]
        while self._take("and"):
            parts.append(self._not())
        return parts[0] if len(parts) == 1 else lambda run: _negated(_either([_negated(part(run)) for part in parts]))

    def _not(self) -> Condition:
        if self._take("not"):
            inner = self._not()
            return lambda run: _negated(inner(run))
        if self._take("("):
            inner = self._or()
            self._expect(")")
            return inner
        return self._predicate()

    def _predicate(self) -> Condition:
        name = self._name()
        if self._take("is"):
            wanted = not self._take("not")
            self._expect("null")
            return lambda run: (lookup(run, name) is None) == wanted
        negated = self._take("not")
        test = self._test(name, negated)
        return (lambda run: _negated(test(lookup(run, name)))) if negated else (lambda run: test(lookup(run, name)))

    def _test(self, name: str, negated: bool) -> Callable[[Any], bool | None]:
        if self._take("between"):
            low = self._value(name)
            self._expect("and")
            high = self._value(name)
            return lambda value: _negated(
                _either([_compare(value, low, lambda c: c < 0), _compare(value, high, lambda c: c > 0)])
            )
        if self._take("in"):
            self._expect("(")
            choices = [self._value(name)]
            while self._take(","):
                choices.append(self._value(name))
            self._expect(")")
            return lambda value: _either([_equal(value, choice) for choice in choices])
        if self._take("like"):
            pattern = _like(self._value(name).text)
            return lambda value: None if value is None else pattern.fullmatch(str(value)) is not None
        operator = self._tokens[self._at][1]
        if negated or operator not in _OPERATORS:
            self._fail(
                "BETWEEN, IN or LIKE" if negated else "a comparison (=, !=, <, <=, >, >=, BETWEEN, IN, LIKE, IS)"
            )
        self._next()
        literal = self._value(name)
        return lambda value: _OPERATORS[operator](value, literal)

    def _name(self) -> str:
        kind, text, _ = self._tokens[self._at]
        if kind == "quoted":
            name = text.replace("`", "")
        elif kind == "word" and text.lower() not in _WORDS and not _NUMBER.fullmatch(text):
            name = text
        else:
            self._fail("a name")
        self._next()
        self._names.append(name)
        return name

    def _value(self, name: str) -> Literal:
        kind, text, column = self._tokens[self._at]
        if kind not in ("text", "word") or text.lower() in _WORDS:
            self._fail("a value")
        self._next()
        written = text[1:-1].replace(text[0] * 2, text[0]) if kind == "text" else text
        return _literal(name, written, kind == "text") or self._fail(_WANTED[name], column)

    def _next(self) -> tuple[str, str, int]:
        token = self._tokens[self._at]
        self._at += 1
        return token

    def _sees(self, *words: str) -> bool:
        kind, text, _ = self._tokens[self._at]
        return kind not in ("text", "quoted") and text.lower() in words

    def _take(self, word: str) -> bool:
        if not self._sees(word):
            return False
        self._at += 1
        return True

    def _expect(self, word: str) -> None:
        if not self._take(word):
            self._fail(word.upper() if word.isalpha() else f"'{word}'")

    def _fail(self, wanted: str, column: int | None = None) -> NoReturn:
        _, text, at = self._tokens[self._at]
        if column is not None:
            at = column
            text = next(token for _, token, begins in self._tokens if begins == column)
        raise _error(self._text, at, f"expected {wanted}, found {text or 'the end'}")


def _tokens(text: str) -> Iterator[tuple[str, str, int]]:
    at, end = 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            begins = len(text) - len(text[at:].lstrip())
            if text[begins] in "'\"`":
                raise _error(text, begins, f"expected another {text[begins]} after this one, found none")
            raise _error(text, begins, f"expected a name, a value or a comparison, found {text[begins]}")
        yield match.lastgroup, match[match.lastgroup], match.start(match.lastgroup)
        at = match.end()
    yield "end", "", end


def _error(text: str, at: int, said: str) -> ConfigurationError:
    line = "".join(" " if character.isspace() else character for character in text)
    return ConfigurationError(f"query, column {at + 1}: {said}.\n  {line}\n  {' ' * at}^")


_WANTED = {
    "started": "a time such as 2013-01-31 or 2013-01-31T12:00",
    "ended": "a time such as 2013-01-31 or 2013-01-31T12:00",
    "duration": "seconds, or a duration such as 90s, 10m or 2h",
}


def _literal(name: str, text: str, quoted: bool) -> Literal | None:
    """The value that `text` is when compared with `name`; None where it cannot be one."""
    if name in ("started", "ended"):
        try:
            at = datetime.fromisoformat(text)
        except ValueError:
            return None
        return Literal(text, number_of((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()), quoted)
    if name == "duration":
        unit = _SECONDS.get(text[-1:].lower(), 0)
        number = number_of(text[:-1] if unit else text)
        with suppress(Overflow):
            return None if number is None else Literal(text, number * (unit or 1), quoted)
        return None
    return Literal(text, number_of(text), quoted)


def _either(parts: list[bool | None]) -> bool | None:
    """OR of three values: true, false and unknown."""
    if any(parts):
        return True
    return None if None in parts else False


def _negated(value: bool | None) -> bool | None:
    return None if value is None else not value


def _equal(value: Any, literal: Literal) -> bool | None:
    if value is None:
        return None
    number = number_of(value)
    if number is not None and literal.number is not None:
        return number == literal.number
    return _plain(str(value)) == _plain(literal.text)


def _plain(text: str) -> str:
    """Text as it compares: Python writes True where people and YAML write true; MLflow's statuses are upper case."""
    return text.lower() if text.lower() in _CASELESS else text


_CASELESS = frozenset(("true", "false", "none", "finished", "failed", "running", "killed", "scheduled"))


def _compare(value: Any, literal: Literal, wanted: Callable[[int], bool]) -> bool | None:
    if value is None:
        return None
    number = number_of(value)
    if number is not None and literal.number is not None:
        return wanted((number > literal.number) - (number < literal.number))
    if number is None and literal.number is None and literal.quoted and isinstance(value, str):
        return wanted((value > literal.text) - (value < literal.text))
    return None


def _like(pattern: str) -> re.Pattern[str]:
    """SQL's LIKE: % is any text, _ any character; letters of any case."""
    parts = {"%": ".*", "_": "."}
    return re.compile("".join(parts.get(each, re.escape(each)) for each in pattern), re.IGNORECASE | re.DOTALL)


_OPERATORS: dict[str, Callable[[Any, Literal], bool | None]] = {
    "=": _equal,
    "==": _equal,
    "!=": lambda value, literal: _negated(_equal(value, literal)),
    "<>": lambda value, literal: _negated(_equal(value, literal)),
    "<": lambda value, literal: _compare(value, literal, lambda c: c < 0),
    "<=": lambda value, literal: _compare(value, literal, lambda c: c <= 0),
    ">": lambda value, literal: _compare(value, literal, lambda c: c > 0),
    ">=": lambda value, literal: _compare(value, literal, lambda c: c >= 0),
}
