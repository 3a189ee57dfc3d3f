"""Where a problem stands in a YAML text: lines of keys, keys that stand twice, and what a model refuses."""

import difflib
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, timedelta
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import yaml
from pydantic import BaseModel, TypeAdapter, ValidationError

from gatehouse.components.artifacts.redaction import redacted, without_secrets
from gatehouse.rules_between_keys import broken_rules, chooser, errors_of, misspelled

_Model = TypeVar("_Model", bound=BaseModel)
_LONGEST = 120
_DEEPEST = 100
_MOST_COPIED = 100_000
"""Values that aliases may stand for in all."""
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
)
_NO_YAML = {
    "cannot start any token": "found a value that begins with {found}; put it in quotes",
    "mapping values are not allowed": "found a second ': ' in a line, or a key that is indented more than its "
    "neighbours; put a text that holds ': ' in quotes, or align the key",
    "expected ','": "found {found} that is never closed; close it, or put the text in quotes",
    "end of stream": "found {found} that is never closed; close it",
    "undefined alias": "found a value that begins with *; put it in quotes",
    "unhashable key": "found a list or a section as a key; write a text",
    "expected node content": "found a [ or {{ that is never closed, or a comma with nothing before it; close it, or "
    "remove the comma",
    "the tag": "found a value that begins with !; put it in quotes",
    "expected ':'": "expected a key with its colon and a space, as `key: value`",
    "another document": "found a second document, which begins with ---; keep one",
    "expected key": "found a line that is indented otherwise than its neighbours; align it",
    "block end": "found a line that is indented otherwise than its neighbours; align it",
}
"""What to do, by words of libyaml."""
_ELSEWHERE = {
    **dict.fromkeys(("int", "integer", "bigint", "long"), "int64"),
    **dict.fromkeys(("float", "float64", "real", "decimal"), "double"),
    **dict.fromkeys(("text", "str", "varchar", "object"), "string"),
    **dict.fromkeys(("boolean", "logical"), "bool"),
    **dict.fromkeys(("datetime", "timestamptz", "date", "time"), "timestamp"),
    **dict.fromkeys(("temporal", "chronological"), "time"),
}
"""What other programs call a type of column or a way to split, and our name."""
_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "null": "nothing",
    "timestamp": "a time",
}
"""What YAML reads a value as, by the end of its tag."""
_SECTION = (dict, list, date)
_NAMES = re.compile("'([^']*)'")
_NEXT = re.compile(r"; (?=[\w.]+: )")
"""Between two problems of one rule, each of which begins with its key."""
_LOGIN = re.compile(r"://[^\s'\"]+@")
"""What an address holds before its host, up to the last `@`: a password may hold `/` and `@`."""


class _TextKeys(yaml.CSafeLoader):
    """Reads the keys `on`, `off`, `yes` and `no` as texts, as YAML 1.2 does; YAML 1.1 takes them for true and false."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """The mapping of a node, with its keys as they are written."""
        self.flatten_mapping(node)
        for key, _ in node.value:
            if key.tag == "tag:yaml.org,2002:bool" and key.value.lower() not in ("true", "false"):
                key.tag = "tag:yaml.org,2002:str"
        return super().construct_mapping(node, deep)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """The value of a node; a YAMLError with its line where it is none, as of `!!int x` or `0x_`."""
        try:
            return super().construct_object(node, deep)
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            told = "a value cannot be read; put it in quotes, or correct it"
            raise yaml.constructor.ConstructorError(None, None, told, node.start_mark) from error

    def construct_day(self, node: yaml.ScalarNode) -> Any:
        """The time of a node; the text where the calendar has no such day, for whoever wants a time to refuse."""
        try:
            return self.construct_yaml_timestamp(node)
        except ValueError:
            return node.value


_TextKeys.add_constructor("tag:yaml.org,2002:timestamp", _TextKeys.construct_day)


class _EveryKeyText(_TextKeys):
    """Reads every key as a text."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """The mapping of a node, with texts for keys."""
        self.flatten_mapping(node)
        for key, _ in node.value:
            key.tag = "tag:yaml.org,2002:str"
        return super().construct_mapping(node, deep)


def not_text(error: UnicodeDecodeError) -> str:
    """Why a file is no text, and what to do."""
    line = error.object.count(b"\n", 0, error.start) + 1
    return f"expected text in UTF-8, found the byte {error.object[error.start]:#04x} in line {line}; save it as UTF-8"


def read_text(path: Path, name: str, problems: list[str]) -> str | None:
    """The text of a file of a project; None where it cannot be read, with the problem added."""
    try:
        return path.read_text()
    except FileNotFoundError:
        told = f"expected a file in {path.parent}, found none"
    except IsADirectoryError:
        told = f"expected a file in {path.parent}, found a folder"
    except PermissionError:
        told = "expected a file that you may read, found one that you may not; change its permissions"
    except UnicodeDecodeError as error:
        told = not_text(error)
    except (OSError, ValueError) as error:  # ValueError: a name with a null byte.
        told = f"expected a file that can be read, found none ({getattr(error, 'strerror', None) or error})"
    problems.append(f"{name}: {told}")
    return None


def not_yaml(name: str, text: str, error: Exception) -> str:
    """Why a text is no YAML, with its line and what to do."""
    mark, begun = getattr(error, "problem_mark", None), getattr(error, "context_mark", None)
    said = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
    if not mark:
        line = text.count("\n", 0, getattr(error, "position", 0)) + 1
        return f"{name}:{line}: is not YAML: {said}; remove what no editor shows"
    rows = [*text.splitlines(), ""]
    if "\t" in (row := rows[min(mark.line, len(rows) - 1)])[: len(row) - len(row.lstrip())]:
        return f"{name}:{mark.line + 1}: is not YAML: found a tab before the key; indent with spaces"
    if row.lstrip().startswith(":"):
        return f"{name}:{mark.line + 1}: is not YAML: found a colon with no key before it; write the key"
    told = next((told for words, told in _NO_YAML.items() if words in said), said)
    if begun and any(
        words in said for words in ("expected ','", "expected node content", "end of stream", "expected ':'")
    ):
        mark = begun  # Where it began says more than where the file ended.
    row = rows[min(mark.line, len(rows) - 1)]
    if odd := [each for each in "\u00a0\uff1a" if each in row and "expected ':'" in said]:
        told = f"found {', '.join(_odd(''.join(odd)))}, which is no colon and no space; write `key: value` anew"
    found = row[mark.column :][:1]
    return f"{name}:{min(mark.line + 1, max(len(rows) - 1, 1))}: is not YAML: {told.format(found=found)}"


def read_yaml(text: str | bytes) -> Any:
    """What a YAML text holds, with its keys as they are written.

    Raises:
        yaml.YAMLError: if it is no YAML, or is deeper or holds more aliases than any configuration.
    """
    require_bounded(text)
    return yaml.load(text, Loader=_TextKeys)  # noqa: S506 - a safe loader


def require_bounded(text: str | bytes) -> None:
    """Refuse a YAML text that would take all memory or never end: too deep, or with aliases of themselves or of many.

    Raises:
        yaml.YAMLError: with the line.
    """
    around, sizes, read, copied = list[tuple[str, int]](), dict[str, int](), 0, 0
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        told, anchor = "", str(getattr(event, "anchor", None) or "")
        if isinstance(event, yaml.AliasEvent):
            copied, read = copied + sizes.get(anchor, 1), read + sizes.get(anchor, 1)
            if anchor in (outer for outer, _ in around):
                told = f"found the alias *{anchor} inside of &{anchor}, so that it never ends; remove the alias"
            elif copied > _MOST_COPIED:
                told = f"found aliases that stand for more than {_MOST_COPIED:,} values; write fewer of them"
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = around.pop()
            sizes |= {anchor: read - before} if anchor else {}
        elif isinstance(event, yaml.NodeEvent):
            sizes |= {anchor: 1} if anchor else {}
            around += [(anchor, read)] if isinstance(event, yaml.CollectionStartEvent) else []
            read += 1
            if len(around) > _DEEPEST:
                told = f"found more than {_DEEPEST} lists or sections inside of each other; write fewer levels"
        if told:
            raise yaml.composer.ComposerError(None, None, told, cast(Any, event.start_mark))


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
            problems.extend(_no_texts(name, text))
            body = instead(yaml.load(text, Loader=_EveryKeyText))  # noqa: S506 - a safe loader
            errors = [each for each in errors_of(model, body) if not _is_no_text(each, text)]
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
    # A letter of another script looks the same, and some characters are not seen.
    alike = "" if name.isascii() or not found or not found[0].isascii() else f" It holds {', '.join(_odd(name))}"
    return f" (did you mean {found[0]}?{alike})" if found else ""


def _odd(text: str) -> list[str]:
    """The Unicode names of the characters that are not of ASCII, each once."""
    return [unicodedata.name(each, f"U+{ord(each):04X}") for each in dict.fromkeys(text) if not each.isascii()]


def at_line(name: str, lines: Mapping[tuple[Any, ...], int], problem: str) -> str:
    """A problem that begins with a dotted key, with the line of that key, or of the nearest one above it."""
    where = tuple(problem.partition(":")[0].split("."))
    line = next((lines[where[:length]] for length in range(len(where), 0, -1) if where[:length] in lines), 1)
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


def _no_texts(name: str, text: str) -> Iterator[str]:
    """A problem for every key that YAML does not read as a text."""
    for key in _keys_in(text):
        if kind := _kind_of(key):
            told = f"expected a text as the key, found {kind}; write the name of a key, or put it in quotes"
            yield f"{name}:{key.start_mark.line + 1}: {key.value or 'a key'}: {told}"


def _kind_of(key: yaml.ScalarNode) -> str:
    """What YAML reads a key as; empty for a text."""
    kind = key.tag.rpartition(":")[2]
    return "" if kind == "bool" and key.value.lower() not in ("true", "false") else _KINDS.get(kind, "")


def _is_no_text(error: Any, text: str) -> bool:
    """Whether an error is of an unknown key that `_no_texts` tells."""
    unknown = error["type"] == "extra_forbidden"
    return unknown and error["loc"][-1] in {key.value for key in _keys_in(text) if _kind_of(key)}


def _keys_in(text: str) -> Iterator[yaml.ScalarNode]:
    """Every key of a YAML text, once."""
    pending, seen = [yaml.compose(text, Loader=yaml.CSafeLoader)], set[int]()
    while pending:
        node = pending.pop(0)
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                yield from [key] if isinstance(key, yaml.ScalarNode) else []
                pending.append(value)
        elif isinstance(node, yaml.SequenceNode):
            pending.extend(node.value)


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
    told = redacted(_LOGIN.sub("://***@", written.removesuffix("\n...\n").strip()))
    return told if len(told) <= _LONGEST else f"{told[: _LONGEST - 1]}…"


def repeated_keys(name: str, text: str) -> list[str]:
    """A problem for every key that its mapping has twice."""
    twice = (f"{name}:{line}: {key}: stands twice; keep one of them" for line, key in _repeated(text))
    return list(dict.fromkeys(twice))  # An alias may lead to a key again.


def _repeated(text: str) -> Iterator[tuple[int, str]]:
    """Line and name of every key that its mapping has twice; YAML itself would silently take the last."""
    pending = [yaml.compose(text, Loader=yaml.CSafeLoader)]
    while pending:
        node = pending.pop()
        if isinstance(node, yaml.MappingNode):
            seen: set[str] = set()
            for key, value in node.value:
                if key.value in seen:
                    yield key.start_mark.line + 1, str(key.value)
                seen.add(key.value)
                pending.append(value)
        elif isinstance(node, yaml.SequenceNode):
            pending.extend(node.value)


def lines_of(text: str) -> dict[tuple[Any, ...], int]:
    """Line, from 1, of every key of a YAML text."""
    found: dict[tuple[Any, ...], int] = {}

    def visit(node: yaml.Node | None, path: tuple[Any, ...]) -> None:
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                found[(*path, key.value)] = key.start_mark.line + 1
                visit(value, (*path, key.value))
        elif isinstance(node, yaml.SequenceNode):
            for index, value in enumerate(node.value):
                found[(*path, index)] = value.start_mark.line + 1
                visit(value, (*path, index))

    visit(yaml.compose(text, Loader=yaml.CSafeLoader), ())
    return found
