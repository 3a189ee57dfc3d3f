"""Reads YAML as a person writes it: its keys as texts, with a line for what is no YAML or would never end."""

import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import yaml

_UNREADABLE = "a value cannot be read; put it in quotes, or correct it"
_TWO_MEANINGS = re.compile(r"[-+]?(?:0[0-9_]+$|[0-9_]+:)")
"""Numbers with a leading zero, which are octal, and with colons, which are sexagesimal."""
_DEEPEST = 100
_MOST_COPIED = 100_000
"""Values that aliases may stand for in all."""
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
_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "null": "nothing",
    "timestamp": "a time",
}
"""What YAML reads a value as, by the end of its tag."""


class _TextKeys(yaml.CSafeLoader):
    """Reads the keys `on`, `off`, `yes` and `no` as texts, as YAML 1.2 does; YAML 1.1 takes them for true and false."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """The mapping of a node, with its keys as they are written."""
        if not isinstance(node, yaml.MappingNode):  # Such as `!!set [1]`.
            raise yaml.constructor.ConstructorError(None, None, _UNREADABLE, node.start_mark)
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
            raise yaml.constructor.ConstructorError(None, None, _UNREADABLE, node.start_mark) from error

    def construct_number(self, node: yaml.ScalarNode) -> Any:
        """The number of a node; a YAMLError where YAML 1.1 reads another one than a person does, as 90 of `1:30`."""
        read = self.construct_yaml_float if node.tag.endswith("float") else self.construct_yaml_int
        number = read(node)
        if _TWO_MEANINGS.match(node.value):
            told = (
                f"found {node.value}, which YAML reads as {number}; write the number in digits alone, or put a text in "
            )
            raise yaml.constructor.ConstructorError(None, None, f"{told}quotes", node.start_mark)
        return number

    def construct_day(self, node: yaml.ScalarNode) -> Any:
        """The time of a node; the text where the calendar has no such day, for whoever wants a time to refuse."""
        try:
            return self.construct_yaml_timestamp(node)
        except ValueError:
            return node.value


_TextKeys.add_constructor("tag:yaml.org,2002:timestamp", _TextKeys.construct_day)
_TextKeys.add_constructor("tag:yaml.org,2002:int", _TextKeys.construct_number)
_TextKeys.add_constructor("tag:yaml.org,2002:float", _TextKeys.construct_number)


class _EveryKeyText(_TextKeys):
    """Reads every key as a text."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """The mapping of a node, with texts for keys."""
        self.flatten_mapping(node)
        for key, _ in node.value:
            key.tag = "tag:yaml.org,2002:str"
        return super().construct_mapping(node, deep)


def with_keys_as_text(text: str) -> Any:
    """What YAML says, with every key as a text."""
    return yaml.load(text, Loader=_EveryKeyText)  # noqa: S506  # A loader that is derived from a safe one.


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
        told = (
            f"found {', '.join(odd_characters(''.join(odd)))}, which is no colon and no space; write `key: value` anew"
        )
    found = row[mark.column :][:1]
    is_none = "" if told.startswith("found") and "which YAML reads" in told else "is not YAML: "
    return f"{name}:{min(mark.line + 1, max(len(rows) - 1, 1))}: {is_none}{told.format(found=found)}"


def read_yaml(text: str | bytes) -> Any:
    """What a YAML text holds, with its keys as they are written.

    Raises:
        yaml.YAMLError: if it is no YAML, or is deeper or holds more aliases than any configuration.
    """
    require_bounded(text)
    return yaml.load(text, Loader=_TextKeys)  # noqa: S506  # A loader that is derived from a safe one.


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


def odd_characters(text: str) -> list[str]:
    """The Unicode names of the characters that are not of ASCII, each once."""
    return [unicodedata.name(each, f"U+{ord(each):04X}") for each in dict.fromkeys(text) if not each.isascii()]


def keys_that_are_no_text(name: str, text: str) -> Iterator[str]:
    """A problem for every key that YAML does not read as a text."""
    for key in _keys_in(text):
        if kind := _kind_of(key):
            told = f"expected a text as the key, found {kind}; write the name of a key, or put it in quotes"
            yield f"{name}:{key.start_mark.line + 1}: {key.value or 'a key'}: {told}"


def _kind_of(key: yaml.ScalarNode) -> str:
    """What YAML reads a key as; empty for a text."""
    kind = key.tag.rpartition(":")[2]
    return "" if kind == "bool" and key.value.lower() not in ("true", "false") else _KINDS.get(kind, "")


def is_no_text(error: Any, text: str) -> bool:
    """Whether an error is of an unknown key that `keys_that_are_no_text` tells."""
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
