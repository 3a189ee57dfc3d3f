"""What a model refuses of a YAML text, each problem with the line of its key."""

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, timedelta
from functools import cache
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, TypeAdapter, ValidationError

from gatehouse.configuration.rules_between_keys import broken_rules, chooser, errors_of, misspelled
from gatehouse.configuration.yaml_text import (
    is_no_text,
    keys_that_are_no_text,
    lines_of,
    not_yaml,
    odd_characters,
    read_yaml,
    repeated_keys,
    with_keys_as_text,
)
from gatehouse.runtime.redaction import redacted, without_secrets

_Model = TypeVar("_Model", bound=BaseModel)
_LONGEST = 120
_OF_NOTHING = ("missing", "impossible")
"""Errors about a key that does not stand in the text."""
_EXPECTED = {
    "time_delta": "expected a length of time: P1D or PT12H in YAML, timedelta(days=1) in Python",
    "tuple_type": "expected a list of values",
    "dict_type": "expected keys with values",
    "mapping_type": "expected keys with values",
    "model_": "expected keys with values",
    "string_type": "expected a text",
    "int_": "expected a whole number",
    "float_": "expected a number",
    "bool_": "expected true or false",
    "datetime_": "expected a time such as 2024-07-01T00:00:00Z",
}
_WORDS = (
    ("greater than or equal to", "at least"),
    ("less than or equal to", "at most"),
    ("String should", "Input should"),
    ("greater than", "more than"),
    ("datetime.timedelta(0)", "0"),
)
_WITH_A_WORD = 0.6
"""How alike names must be that have a whole word in common."""
_ELSEWHERE = {
    **dict.fromkeys(("int", "integer", "bigint", "long"), "int64"),
    **dict.fromkeys(("float", "float64", "real", "decimal"), "double"),
    **dict.fromkeys(("text", "str", "varchar", "object"), "string"),
    **dict.fromkeys(("boolean", "logical"), "bool"),
    **dict.fromkeys(("datetime", "timestamptz", "date", "time"), "timestamp"),
    **dict.fromkeys(("temporal", "chronological"), "time"),
}
"""What other programs call a type of column or a way to split, and our name."""
_SECTION = (dict, list, date)
_NAMES = re.compile("'([^']*)'")
_NEXT = re.compile(r"; (?=[\w.]+: )")
"""Between two problems of one rule, each of which begins with its key."""


def load_model(
    name: str,
    text: str,
    model: type[_Model],
    problems: list[str],
    partly: bool = False,
    instead: Callable[[Any], Any] = lambda body: body,
) -> _Model | None:
    """Read `text` as `model`; None where that fails, with every problem added as `name:line: key: what`.

    Args:
        name: What the text is called.
        text: YAML.
        model: What it must fit.
        problems: Gets the problems.
        partly: Give what is right where keys are wrong; reading one of these is an AttributeError.
        instead: Gives what is read instead of the content of `text`, such as one with a mistake less.
    """
    try:
        body = read_yaml(text)
    except yaml.YAMLError as error:
        problems.append(not_yaml(name, text, error))
        return None
    if body is None:
        problems.append(f"{name}: expected keys with values, found an empty file")
        return None
    problems.extend(repeated_keys(name, text))
    try:
        body = instead(body)
        return model.model_validate(body)
    except ValidationError as error:
        lines, keys, errors = lines_of(text), _keys_of(model), error.errors()
        if any(each["type"] == "invalid_key" or "[key]" in each["loc"] for each in errors):
            problems.extend(keys_that_are_no_text(name, text))
            body = instead(with_keys_as_text(text))
            errors = [each for each in errors_of(model, body) if not is_no_text(each, text)]
        read, broken = broken_rules(model, body)
        details = _together(_own(_at_keys(body, [part for each in (*errors, *broken) for part in _apart(each)])))
        problems.extend(dict.fromkeys(_explain(name, lines, keys, detail) for detail in details))
        return read if partly else None


def nearest(name: str, known: Iterable[str], cutoff: float = 0.75, elsewhere: Mapping[str, str] = _ELSEWHERE) -> str:
    """Words that offer the known name which is most like one that is not known; empty where none is.

    Args:
        name: The name that is not known.
        known: The known names.
        cutoff: How alike two names must be, from 0 to 1.
        elsewhere: What other programs call things, in lower case, and our names; these come before similar names.
    """
    names = list(known)
    meant = [each for each in (elsewhere.get(name.lower()),) if each in names]
    found = meant or difflib.get_close_matches(name, names, n=1, cutoff=cutoff)
    if not found:
        words = set(name.lower().split("_"))
        akin = [each for each in names if not words.isdisjoint(each.split("_"))]
        found = difflib.get_close_matches(name, akin, n=1, cutoff=_WITH_A_WORD)
    # A letter of another script looks the same, and some characters are not seen.
    alike = (
        "" if name.isascii() or not found or not found[0].isascii() else f" It holds {', '.join(odd_characters(name))}"
    )
    return f" (did you mean {found[0]}?{alike})" if found else ""


def at_line(name: str, lines: Mapping[tuple[Any, ...], int], problem: str) -> str:
    """A problem that begins with a dotted key, with the line of that key, or of the nearest one above it."""
    parts = problem.partition(":")[0].split(".")
    places = (tuple(parts), tuple(int(part) if part.isdecimal() else part for part in parts))  # in a list, by number
    found = (place[:length] for length in range(len(parts), 0, -1) for place in places if place[:length] in lines)
    line = next((lines[place] for place in found), 1)
    return redacted(f"{name}:{line}: {problem}")


def in_words(detail: Any) -> str:
    """What an error of pydantic says was expected, for a person."""
    kind, said = str(detail["type"]), str(detail["msg"]).removeprefix("Value error, ")
    context = detail.get("ctx", {})
    if kind == "choice":
        return said + nearest(str(detail["input"]), said.removeprefix("expected one of ").split(", "))
    if names := _NAMES.findall(str(context.get("expected_tags", context.get("expected", "")))):
        offered = nearest(str(context.get("tag", detail["input"])), names)
        return f"expected {'one of ' * (len(names) > 1)}{', '.join(names)}{offered}"
    if kind == "union_tag_not_found":
        return f"expected the key {context['discriminator'].strip(chr(39))} to say which"
    if kind == "too_short" and "min_length" in context:
        return f"expected at least {context['min_length']} of them"
    for beginning, expected in _EXPECTED.items():
        if kind.startswith(beginning):
            return expected
    for theirs, ours in _WORDS:
        said = said.replace(theirs, ours)
    return said.replace("Input should be ", "expected ").replace("Input should ", "expected to ")


def _at_keys(body: Any, details: list[Any]) -> list[Any]:
    """Errors at the keys that stand in the text: pydantic adds names of a union's members, which nobody wrote."""
    placed = []
    for detail in details:
        place, within, parts = list[str | int](), body, tuple(detail["loc"])
        for index, part in enumerate(parts):
            held = len(within) if isinstance(within, list) else 0
            if (isinstance(within, dict) and part in within) or (isinstance(part, int) and part < held):
                within = within[part]
            elif isinstance(part, str) and not (detail["type"] in _OF_NOTHING and index == len(parts) - 1):
                continue
            place.append(part)
        member = bool(parts) and place[-1:] != [parts[-1]]
        placed.append(_at_named({**detail, "loc": tuple(place), "member": member}, within))
    return placed


def _apart(detail: Any) -> list[Any]:
    """The problems that one rule tells together."""
    return (
        [{**detail, "msg": said} for said in _NEXT.split(detail["msg"])]
        if detail["type"] == "value_error"
        else [detail]
    )


def _at_named(detail: Any, within: Any) -> Any:
    """An error at the key that it names itself: the one that chooses a member of a union, or the first of its words."""
    said, keys, inner = detail["msg"].removeprefix("Value error, "), chooser(detail), within
    if detail["type"] == "value_error":
        name, colon, rest = said.partition(": ")
        keys = (name,) if isinstance(within, dict) and name in within else tuple(name.split(".")) if colon else ()
    for key in keys:
        if not isinstance(inner, dict) or key not in inner:
            return detail
        inner = inner[key]
    if not keys:
        return detail
    moved = {**detail, "loc": (*detail["loc"], *keys), "input": inner, "member": False}
    if detail["type"] != "value_error":
        names = detail.get("ctx", {}).get("expected_tags")
        told = f"expected one of {', '.join(_NAMES.findall(names))}" if names else said
        return {**moved, "type": "choice", "msg": told, "ctx": {}}
    return _at_named({**moved, "msg": rest.removeprefix(f"{inner}: ")}, inner)


def _together(details: list[Any]) -> list[Any]:
    """Errors of which those that are none for another form of the same value are one, that offers each form."""
    found: dict[Any, Any] = {}
    for number, detail in enumerate(details):
        said = in_words(detail)
        key = detail["loc"] if detail["member"] and said.startswith("expected ") else number
        before = found.setdefault(key, {**detail, "words": said})["words"]
        if said not in before:
            found[key]["words"] = f"{before}, or {said.removeprefix('expected ')}"
    return list(found.values())


def _own(details: list[Any]) -> list[Any]:
    """Errors without those that only follow from others.

    A list is too short because its values are wrong; a key is missing because it is misspelled.
    """
    places = [tuple(each["loc"]) for each in details]
    absent = {place for each, place in zip(details, places, strict=True) if each["type"] == "missing"}
    beside = [(place[:-1], each) for each, place in zip(details, places, strict=True) if place]
    meant = {
        (*above, name)
        for above, each in beside
        for name in misspelled(each, [str(place[-1]) for place in absent if place[:-1] == above])
    }
    return [
        each
        for each, place in zip(details, places, strict=True)
        if place not in (meant & absent)
        and (each["type"] != "too_short" or not any(other[:-1][: len(place)] == place for other in places))
        # Another form of a list is not meant where one of its values is wrong.
        and not (
            each["member"]
            and isinstance(each["input"], list)
            and any(other[:-1][: len(place)] == place and len(other) > len(place) for other in places)
        )
    ]


def _explain(name: str, lines: dict[tuple[Any, ...], int], keys: Sequence[set[str]], detail: Any) -> str:
    where = tuple(detail["loc"])
    known = next((where[:length] for length in range(len(where), -1, -1) if where[:length] in lines), ())
    # A rule may be written without its key `value`.
    path = where[:-1] if where not in lines and where[-1:] == ("value",) and detail["type"] != "missing" else where
    given = detail.get("ctx", {}).get("tag", detail["input"])
    # A rule of our own says what it found.
    told = detail["type"] == "missing" or (detail["type"] == "value_error" and ", found " in detail["msg"])
    found = "" if told else f", found {shown(given)}"
    ruled = detail["type"] in ("value_error", "impossible") and isinstance(given, dict | list)
    # The text says more of a section than a rule between its keys, or than the beginning of a long one.
    if ruled or (isinstance(given, _SECTION) and found.endswith("…")):
        found = ""
    key = ".".join(str(part) or "''" for part in path) or "the file"
    said = detail["words"]
    if ", found " in said:  # What says itself what it found does so in few words.
        found = ""
    if not path and detail["type"] == "value_error":
        return at_line(name, lines, said)
    if detail["type"] == "missing":
        said = "expected this key, found none"
    if detail["type"] == "extra_forbidden":
        found = ""  # Nobody knows what an unknown key holds: it may be a password.
        beside = {str(other[-1]) for other in lines if other and other[:-1] == where[:-1]} - {where[-1]}
        meant = nearest(str(where[-1]), _meant(keys, beside) - {str(where[-1])}, 0.7)
        said = detail["msg"] if " has no such setting" in detail["msg"] else f"there is no such key{meant}"
    if said == "expected a text" and isinstance(given, bool | int | float | date):
        found += "; put it in quotes"
    return redacted(f"{name}:{lines.get(known, 1)}: {key}: {said}{found}")


@cache
def _keys_of(model: type[BaseModel]) -> list[set[str]]:
    """The names of the keys of a model, and of each one in it."""
    schema = model.model_json_schema()
    return [set(part.get("properties", {})) for part in (schema, *schema.get("$defs", {}).values())]


def _meant(keys: Sequence[set[str]], beside: set[str]) -> set[str]:
    """The keys of the parts that have most of the keys beside one; all keys where it stands alone, or none is known."""
    most = max(len(part & beside) for part in keys)
    return set[str]().union(*(part for part in keys if len(part & beside) == most))


_DURATION = TypeAdapter(timedelta)


def shown(value: Any) -> str:
    """A value of a file for a message: in one line, not too long, and without what may be a password."""
    if isinstance(value, timedelta):
        value = _DURATION.dump_python(value, mode="json")
    if value is None or isinstance(value, bool):
        return {None: "nothing", True: "true", False: "false"}[value]
    value = without_secrets(value)
    written = (
        yaml.safe_dump(value, default_flow_style=True, width=10**6) if isinstance(value, _SECTION) else repr(value)
    )
    told = redacted(written.removesuffix("\n...\n").strip())
    return told if len(told) <= _LONGEST else f"{told[: _LONGEST - 1]}…"
