"""Reads YAML into models, and reports every mistake as `file:line: key: message`."""

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import date, timedelta
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, TypeAdapter, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.constructor import DuplicateKeyError, SafeConstructor
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from gatehouse.errors import ConfigurationError
from gatehouse.runtime.redaction import redacted, without_secrets

_Model = TypeVar("_Model", bound=BaseModel)
_LONGEST = 120
"""Characters of a value in a message."""
_WITH_A_WORD = 0.6
"""Similarity that suffices for two names that share a whole word."""
_EXPECTED = {
    "invalid_key": "expected a text as the key; put it in quotes",
    "missing": "expected this key, found none",
    "tuple_type": "expected a list of values",
    "list_type": "expected a list of values",
    "dict_type": "expected keys with values",
    "model_": "expected keys with values",
    "string_type": "expected a text",
    "int_": "expected a whole number",
    "float_": "expected a number",
    "bool_": "expected true or false",
    "datetime_": "expected a time such as 2024-07-01T00:00:00Z",
}
"""The expectation behind each kind of error, by the beginning of pydantic's name for it."""
_NUMBER = re.compile(r"[-+]?(0[box][0-9a-f_]*|[0-9._]+(e[-+]?[0-9]+)?)", re.IGNORECASE)
_WORDS = {
    "greater than or equal to": "at least",
    "less than or equal to": "at most",
    "greater than": "more than",
    "datetime.timedelta(0)": "0",
    "String should ": "expected to ",
    "Input should be ": "expected ",
    "Input should ": "expected to ",
}
_OTHER_NAMES = {
    **dict.fromkeys(("int", "integer", "bigint", "long"), "int64"),
    **dict.fromkeys(("float", "float64", "real", "decimal"), "double"),
    **dict.fromkeys(("text", "str", "varchar", "object"), "string"),
    **dict.fromkeys(("boolean", "logical"), "bool"),
    **dict.fromkeys(("datetime", "timestamptz", "date"), "timestamp"),
    **dict.fromkeys(("temporal", "chronological"), "time"),
    **dict.fromkeys(("primary_key", "primary_keys", "key", "keys"), "unique"),
}
"""Names that other programs use, and ours."""
_QUOTED = re.compile("'([^']*)'")
_DURATION = TypeAdapter(timedelta)


class _Constructor(SafeConstructor):
    """Reads a day that no calendar has, such as 2024-02-31, as a text, which the model refuses with its line."""

    def construct_yaml_timestamp(self, node: Any, values: Any = None) -> Any:
        """The time of a node, or its text."""
        try:
            return super().construct_yaml_timestamp(node, values)
        except ValueError:
            return node.value


_Constructor.add_constructor("tag:yaml.org,2002:timestamp", _Constructor.construct_yaml_timestamp)


def read_text(path: Path, name: str, problems: list[str]) -> str | None:
    """The text of a file; None if it cannot be read, with the problem added."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        message = f"expected a file in {path.parent}, found none"
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        message = f"expected text in UTF-8, found another byte in line {line}; save it as UTF-8"
    except (OSError, ValueError) as error:  # ValueError: a name with a null byte.
        message = f"cannot be read: {getattr(error, 'strerror', None) or error}"
    problems.append(f"{name}: {message}")
    return None


def read_yaml(text: str, name: str) -> Any:
    """The content of a YAML text with one document; None for an empty one.

    Raises ConfigurationError, with the line of what is not YAML 1.2, or of a key that is there twice, and for a second
    document.
    """
    try:
        documents = list(_reader().load_all(text))
        json.dumps(documents, default=str, skipkeys=True)  # Refuses an alias within its own anchor.
    except (YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{name}:{mark.line + 1}" if mark else name
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
        if isinstance(error, DuplicateKeyError):  # Its own message shows the values, which may be secrets.
            key = re.findall(chr(34) + "([^" + chr(34) + "]*)", problem)[0]
            raise ConfigurationError(f"{place}: {key}: is there twice; keep one") from error
        raise ConfigurationError(f"{place}: is not YAML: {problem}") from error
    if len(documents) > 1:
        raise ConfigurationError(f"{name}: expected one YAML document, found {len(documents)}")
    return documents[0] if documents else None


def lines_of(text: str) -> dict[tuple[Any, ...], int]:
    """Line, from 1, of every key and list item of a YAML text, by its path."""
    lines: dict[tuple[Any, ...], int] = {}

    def visit(node: Node | None, path: tuple[Any, ...]) -> None:
        children: Iterable[tuple[Any, Node, Node]] = ()
        if isinstance(node, MappingNode):
            children = [(key.value, key, value) for key, value in node.value if isinstance(key, ScalarNode)]
        elif isinstance(node, SequenceNode):
            children = [(index, value, value) for index, value in enumerate(node.value)]
        for part, place, value in children:
            lines[(*path, part)] = place.start_mark.line + 1
            visit(value, (*path, part))

    visit(_reader().compose(text), ())
    return lines


def load_model(name: str, text: str, model: type[_Model], problems: list[str]) -> _Model | None:
    """Read YAML as a model; None if that fails, with every problem added as `name:line: key: message`."""
    try:
        body = read_yaml(text, name)
    except ConfigurationError as error:
        problems.append(str(error))
        return None
    if body is None:
        problems.append(f"{name}: expected keys with values, found an empty file")
        return None
    try:
        return model.model_validate(body)
    except ValidationError as error:
        problems += _problems(name, text, body, model, error)
        return None


def nearest(name: str, choices: Iterable[str], cutoff: float = 0.75, synonyms: Mapping[str, str] = _OTHER_NAMES) -> str:
    """A suggestion, ` (did you mean …?)`, of the choice that is most similar to an unknown name; or empty.

    Similarity is from 0 to 1; names that share a word between underscores need less. `synonyms` maps names that other
    programs use, in lower case, to ours.
    """
    names = list(choices)
    if (other := synonyms.get(name.lower())) in names:
        return f" (did you mean {other}?)"
    words = set(name.lower().split("_"))
    related = [candidate for candidate in names if not words.isdisjoint(candidate.split("_"))]
    matches = difflib.get_close_matches(name, names, n=1, cutoff=cutoff) or difflib.get_close_matches(
        name, related, n=1, cutoff=_WITH_A_WORD
    )
    return f" (did you mean {matches[0]}?)" if matches else ""


def at_line(name: str, lines: Mapping[tuple[Any, ...], int], problem: str) -> str:
    """A problem that begins with a dotted key, with the line of that key or of the nearest one above it."""
    parts = problem.partition(":")[0].split(".")
    paths = (tuple(parts), tuple(int(part) if part.isdecimal() else part for part in parts))  # List items by number.
    prefixes = (path[:length] for length in range(len(parts), 0, -1) for path in paths)
    return redacted(f"{name}:{next((lines[prefix] for prefix in prefixes if prefix in lines), 1)}: {problem}")


def in_words(detail: Any) -> str:
    """The message of one of pydantic's errors, in words of YAML."""
    kind, message = str(detail["type"]), str(detail["msg"]).removeprefix("Value error, ")
    context = detail.get("ctx", {})
    if names := _QUOTED.findall(str(context.get("expected_tags", context.get("expected", "")))):
        suggestion = nearest(str(context.get("tag", detail["input"])), names)
        return f"expected {'one of ' * (len(names) > 1)}{', '.join(names)}{suggestion}"
    if kind == "union_tag_not_found":
        return f"expected the key {context['discriminator'].strip(chr(39))}"
    if kind == "too_short" and "min_length" in context:
        return f"expected at least {context['min_length']} of them"
    for beginning, expected in _EXPECTED.items():
        if kind.startswith(beginning):
            return expected
    for phrase, wording in _WORDS.items():
        message = message.replace(phrase, wording)
    return message


def value_text(value: Any) -> str:
    """A value for a message: on one line, at most 120 characters, and without secrets."""
    if isinstance(value, timedelta):
        value = _DURATION.dump_python(value, mode="json")
    value = without_secrets(value)
    if isinstance(value, str):
        text = repr(value)
    else:
        text = yaml.safe_dump(value, default_flow_style=True, width=10**6).removesuffix("\n...\n").strip()
    text = redacted("nothing" if text == "null" else text)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


class _Writer(yaml.SafeDumper):
    """Quotes texts that YAML 1.2, which we read, takes for a number or a line break, and YAML 1.1 does not."""


def _write_text(writer: _Writer, text: str) -> yaml.ScalarNode:
    unsafe = _NUMBER.fullmatch(text) or text.splitlines() not in ([text], [])
    return writer.represent_scalar("tag:yaml.org,2002:str", text, style='"' if unsafe else None)


_Writer.add_representer(str, _write_text)


def yaml_text(body: Any, **style: Any) -> str:
    """`body` as YAML that reads back as the same; `style` are options of `yaml.dump`. No line end at the end."""
    return str(yaml.dump(body, Dumper=_Writer, sort_keys=False, allow_unicode=True, **style)).rstrip("\n")


def _reader() -> YAML:
    reader = YAML(typ="safe", pure=True)
    reader.Constructor = _Constructor
    return reader


def _problems(name: str, text: str, body: Any, model: type[BaseModel], error: ValidationError) -> list[str]:
    """The problems of a model, one for each key; messages of several members of a union are merged."""
    lines = lines_of(text)
    placed = [(detail["type"], *_placed(body, detail)) for detail in error.errors()]
    deeper = {place[:length] for _, place, _, _ in placed for length in range(len(place))}
    messages: dict[tuple[Any, ...], list[str]] = {}
    values: dict[tuple[Any, ...], str] = {}
    for kind, place, value, message in placed:
        if (kind.endswith("_type") or kind == "too_short") and place in deeper:
            continue  # Another form of the value was meant; and a list is not short of items that are wrong.
        if kind == "extra_forbidden":
            beside = {path[-1] for path in lines if path[:-1] == place[:-1]}
            keys = _keys_at(model.model_json_schema(), place[:-1]) - beside
            if not message.startswith(("is a setting of ", "is no setting of ")):
                message = f"there is no such key{nearest(str(place[-1]), keys, 0.7)}"
        texts = messages.setdefault(place, [])
        texts += [message.removeprefix("expected ") if texts else message] if message not in texts else []
        # The value of an unknown key may be a secret; a rule of ours says what it found.
        silent = kind in ("missing", "extra_forbidden", "invalid_key") or ", found " in message
        if not silent and not (kind == "value_error" and isinstance(value, dict | list)):
            quotes = "; put it in quotes" * (kind == "string_type" and isinstance(value, int | float | date))
            values[place] = f", found {value_text(value)}{quotes}"
    problems = []
    for place, texts in messages.items():
        key = ".".join(map(str, place)) or "the file"
        problems.append(at_line(name, lines, f"{key}: {', or '.join(texts)}{values.get(place, '')}"))
    return problems


def _keys_at(schema: dict[str, Any], path: tuple[Any, ...]) -> set[str]:
    """The keys that a JSON schema knows at a path, in every member of a union."""

    def members(part: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield part
        if "$ref" in part:
            yield from members(schema["$defs"][part["$ref"].rpartition("/")[2]])
        for union in ("anyOf", "oneOf", "allOf"):
            for member in part.get(union, ()):
                yield from members(member)

    parts = [schema]
    for step in path:
        known = [member for part in parts for member in members(part)]
        inner = [member.get("properties", {}).get(step) or member.get("additionalProperties") for member in known]
        inner += [item for member in known for item in (member.get("items"), *member.get("prefixItems", ()))]
        parts = [part for part in inner if isinstance(part, dict)]
    return {key for part in parts for member in members(part) for key in member.get("properties", {})}


def _placed(body: Any, detail: Any) -> tuple[tuple[Any, ...], Any, str]:
    """The path of an error in the file, the wrong value, and the message.

    Pydantic adds the names of a union's members to the path. A rule on several keys begins its message with one.
    """
    place: list[Any] = []
    value, kind, parts = body, detail["type"], list(detail["loc"])
    for number, part in enumerate(parts):
        in_list = isinstance(value, list) and isinstance(part, int) and part < len(value)
        if in_list or (isinstance(value, dict) and part in value):
            value = value[part]
        elif not (kind in ("missing", "impossible") and number == len(parts) - 1):
            continue
        place.append(part)
    message = in_words(detail)
    head, colon, rest = message.partition(": ")
    inner: list[str] = []
    if kind == "union_tag_invalid":
        inner = [detail["ctx"]["discriminator"].strip("'")]
    elif kind == "value_error" and colon:
        inner = head.split(".")
    elif message.startswith("expected one of "):  # A union of ours, whose kind of error is the key that chooses.
        inner = kind.split(".")
    for key in inner:
        if not isinstance(value, dict) or key not in value:
            return tuple(place), detail["input"], message
        value = value[key]
    if inner and kind == "value_error":
        return (*place, *inner), value, rest
    if inner and kind != "union_tag_invalid":
        message += nearest(str(value), message.removeprefix("expected one of ").split(", "))
    return (*place, *inner), value if inner else detail["input"], message
