"""The page of promises: each of them names tests or a command, and no test that it names can be skipped unnoticed."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.source_tree import ROOT

PROMISES = re.findall(r"^\d+\. .*?(?=^\d+\. |^## |\Z)", (ROOT / "docs" / "promises.md").read_text(), re.M | re.S)
NAMED = sorted({test for promise in PROMISES for test in re.findall(r"`(tests/[\w/]+\.py::\w+)`", promise)})
ALLOWED = [line for line in (ROOT / ".ci" / "allowed-skips.txt").read_text().splitlines() if line and line[0] != "#"]
_SKIPS = {"skip", "skipif", "importorskip"}


@cache
def _module(path: Path) -> tuple[list[ast.stmt], dict[str, ast.FunctionDef]]:
    """The statements of a file outside of functions and classes, and its functions by name."""
    body = ast.parse(path.read_text()).body if path.exists() else []
    functions = {statement.name: statement for statement in body if isinstance(statement, ast.FunctionDef)}
    return [statement for statement in body if not isinstance(statement, ast.FunctionDef | ast.ClassDef)], functions


def _skips(path: Path, name: str) -> Iterator[str]:
    """The reasons for which a test, its file or a fixture that it asks for may skip it; empty for a computed one."""
    loose, functions = _module(path)
    files = [functions, *(_module(folder / "conftest.py")[1] for folder in path.parents if ROOT in folder.parents)]
    nodes: list[ast.AST] = [*loose, functions[name]]
    for node in nodes:
        for inner in ast.walk(node):
            if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) and inner.func.attr in _SKIPS:
                texts = [*inner.args[-1:], *(keyword.value for keyword in inner.keywords if keyword.arg == "reason")]
                yield str(texts[-1].value) if isinstance(texts[-1], ast.Constant) else ""
        if isinstance(node, ast.FunctionDef):
            asked = (next((file[arg.arg] for file in files if arg.arg in file), None) for arg in node.args.args)
            nodes += [fixture for fixture in asked if fixture is not None and fixture not in nodes]


def _is_allowed(reason: str) -> bool:
    return any(re.fullmatch(line, reason) for line in ALLOWED)


def test_each_promise_names_what_shows_it() -> None:
    assert [int(promise.partition(".")[0]) for promise in PROMISES] == list(range(1, 34))
    *present, _ = PROMISES  # The last is not there yet.
    assert [promise for promise in present if not re.search(r"^    - `", promise, re.M)] == []
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    assert set(re.findall(r"make ([a-z-]+)", "".join(PROMISES))) <= targets
    files = re.findall(r"(?:tests|benchmarks)/[\w/]+\.py|compile\.py", "".join(PROMISES))
    assert [file for file in files if not (ROOT / file).exists()] == []


def test_each_named_test_exists() -> None:
    assert [test for test in NAMED if test.partition("::")[2] not in _module(ROOT / test.partition("::")[0])[1]] == []


def test_no_named_test_may_be_skipped() -> None:
    skips = {test: [*_skips(ROOT / test.partition("::")[0], test.partition("::")[2])] for test in NAMED}
    allowed = [
        (test, reason) for test, reasons in skips.items() for reason in reasons if not reason or _is_allowed(reason)
    ]
    assert allowed == []
