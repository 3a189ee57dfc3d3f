"""Every command of ours that a page shows exists and takes the options and arguments that it is shown with."""

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from gatehouse.cli import main as cli
from tests.source_tree import ROOT

_BLOCK = re.compile(r"^([ ]*)```(?:bash|sh|console)?\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`(gatehouse [a-z][^`\n]*)`")
_ENDS = {"|", "&&", "||", ";", ">", ">>", "<", "&"}


# Typer brings its own click, and names of it only this.
_UsageError = typer.BadParameter.__mro__[1]


@cache
def _program() -> Any:
    cli.register(*cli._COMMANDS)
    return typer.main.get_command(cli.app)


def _pages() -> list[Path]:
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def _lines(page: Path) -> Iterator[tuple[str, bool]]:
    """The commands of a page, and whether they are whole: in a sentence one may stand without what it is given."""
    text = page.read_text(encoding="utf-8")
    for _, block in _BLOCK.findall(text):
        shown = (line.strip().removeprefix("$ ") for line in block.replace("\\\n", " ").splitlines())
        yield from ((line, True) for line in shown if line.startswith("gatehouse "))
    yield from ((line, False) for line in _INLINE.findall(re.sub(r"```.*?```", "", text, flags=re.DOTALL)))


def _wrong(line: str, whole: bool = True) -> str:
    """What is wrong with a command line; empty where nothing is."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] = []
    for word in lexer:
        if word in _ENDS:
            break
        words.append(word)
    command = _program()
    context, left = command.context_class(command, info_name="gatehouse"), words[1:]
    try:
        while hasattr(command, "commands"):
            _, left, _ = command.make_parser(context).parse_args([*left])
            if not left:
                return ""
            name, result, left = command.resolve_command(context, left)
            if result is None:
                return f"there is no command {name}"
            command, context = result, result.context_class(result, info_name=name, parent=context)
        options, extra, _ = command.make_parser(context).parse_args([*left])
    except _UsageError as error:
        return str(error.format_message())  # type: ignore[attr-defined]  # As above.
    if extra:
        return f"takes no argument {' '.join(extra)}"
    missing = [param.name for param in command.params if param.required and param.param_type_name == "argument"]
    lacking = [name for name in missing if not isinstance(options.get(str(name)), str | tuple)]
    return f"lacks {', '.join(map(str, lacking))}" if lacking and whole else ""


@pytest.mark.parametrize("page", _pages(), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_commands_of_a_page_exist(page: Path) -> None:
    assert {line: wrong for line, whole in _lines(page) if (wrong := _wrong(line, whole))} == {}
