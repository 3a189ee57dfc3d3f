"""Code digests: which edits change them, and which do not."""

import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from gatehouse.store import code
from gatehouse.store.code import (
    CARRIERS,
    DECIDING,
    carries,
    closure_of,
    code_digest,
    code_of,
    source_of,
)
from tests.source_tree import ROOT

STAGE = '''"""A stage."""

from typing import TYPE_CHECKING

from gatehouse.store.stage import stage
from gatehouse.store.database import connect
from gatehouse.errors import SourceError

if TYPE_CHECKING:
    from gatehouse.rooms.typed import Typed

LIMIT = 3
"""The most."""


@stage("room", title="A room", pages={"rooms": "gatehouse.rooms.report:page"})
def room(request, store):
    """Count."""
    from gatehouse.rooms.parts import count

    return count(request.rows) + LIMIT, "gatehouse.rooms.program"
'''
FILES = {
    "__init__": "",
    "errors": "class SourceError(Exception): ...\n",
    "store/__init__": "",
    "store/stage": "import gatehouse.store.store\n",
    "store/store": "import requests\nx = 1\n",
    "store/database": "x = 1\n",
    "rooms/__init__": "",
    "rooms/stage": STAGE,
    "rooms/parts": "import numpy\n\n\ndef count(rows):\n    return rows + 1\n",
    "rooms/typed": "class Typed: ...\n",
    "rooms/program": "import torch\n",
    "rooms/report": "from gatehouse.rooms import stage\n",
    "rooms/other": "x = 1\n",
}
ROOM = "gatehouse.rooms.stage"


def _forget_sources() -> None:
    source_of.cache_clear()
    code._facts.cache_clear()
    code.imports_of.cache_clear()


class Tree:
    def __init__(self, root: Path) -> None:
        self.root = root
        for name, text in FILES.items():
            self.write(name, text)

    def write(self, name: str, text: str) -> None:
        path = self.root / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        _forget_sources()

    def edit(self, name: str, old: str, new: str) -> None:
        text = (self.root / f"{name}.py").read_text()
        assert old in text
        self.write(name, text.replace(old, new))


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tree]:
    monkeypatch.setattr(code, "_ROOT", tmp_path)
    yield Tree(tmp_path)
    _forget_sources()


def test_the_closure_holds_what_decides_and_ends_at_carriers(tree: Tree) -> None:
    names = {name.removeprefix("gatehouse.") for name in closure_of(ROOM, carries)}
    assert names == {"gatehouse", "rooms", "rooms.stage", "rooms.parts", "rooms.program", "store.database"}


def test_distributions_are_those_that_the_closure_imports(tree: Tree) -> None:
    assert set(code_of(ROOM).distributions) == {"numpy", "torch"}


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("rooms/stage", "LIMIT = 3\n", "LIMIT = 3  # of rows\n\n\n"),
        ("rooms/stage", '"""Count."""', '"""Count the rows."""'),
        ("rooms/stage", '"""The most."""', '"""The largest number."""'),
        ("rooms/stage", "rooms.typed import Typed", "rooms.typed import Typed as Other"),
        ("rooms/parts", "rows + 1", "(rows+\n        1)"),
        ("rooms/report", "import stage", "import stage as counted"),
        ("rooms/other", "x = 1", "x = 2"),
        ("store/store", "x = 1", "x = 2"),
        ("errors", "(Exception)", "(ValueError)"),
    ],
)
def test_an_edit_that_cannot_change_a_result_leaves_the_digest(tree: Tree, file: str, old: str, new: str) -> None:
    before = code_digest(ROOM)
    tree.edit(file, old, new)
    assert code_digest(ROOM) == before


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("rooms/stage", "LIMIT = 3", "LIMIT = 4"),
        ("rooms/parts", "rows + 1", "rows + 2"),
        ("rooms/parts", "import numpy", "import scipy"),
        ("rooms/program", "import torch", "import torch\nx = 1"),
        ("store/database", "x = 1", "x = 2"),
    ],
)
def test_an_edit_that_can_change_a_result_changes_the_digest(tree: Tree, file: str, old: str, new: str) -> None:
    before = code_digest(ROOM)
    tree.edit(file, old, new)
    assert code_digest(ROOM) != before


def test_installed_versions_are_in_the_digest_of_keys_and_not_in_that_of_specs(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = code_of(ROOM)
    monkeypatch.setattr(code, "_version", lambda name: "0.1")  # Another release, which nobody installs.
    assert code_of(ROOM).source == installed.source
    assert code_of(ROOM).digest != installed.digest
    tree.edit("rooms/parts", "rows + 1", "rows + 2")
    assert code_of(ROOM).source != installed.source


def test_a_distribution_that_is_not_installed_leaves_no_trace(tree: Tree) -> None:
    before = code_of(ROOM)
    tree.edit("rooms/program", "import torch", "import torch, nowhere_installed")
    assert code_of(ROOM).distributions == before.distributions


def test_computing_a_digest_imports_nothing_of_the_stage() -> None:
    script = (
        "import sys; from gatehouse.store.code import code_digest;"
        "code_digest('gatehouse.training.stage');"
        "assert 'gatehouse.training.stage' not in sys.modules and 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


_PARSED = """
from gatehouse.store import code

parsed, analyse = [], code.analyse
code.analyse = lambda source: parsed.append(source) or analyse(source)
code.closure_of("gatehouse.data.splitting.report", lambda name: False)
print(len(parsed))
"""


def test_a_source_that_one_process_parsed_no_other_parses_again(tmp_path: Path) -> None:
    def parsed() -> int:
        environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
        return int(subprocess.check_output([sys.executable, "-c", _PARSED], env=environment))

    assert parsed() > 10
    assert parsed() == 0


def test_carriers_are_rooms_and_each_exception_is_a_module_in_one_of_them() -> None:
    for room in CARRIERS:
        assert source_of(f"gatehouse.{room}") is not None, room
    for module in DECIDING:
        assert source_of(module) is not None and module.split(".")[1] in CARRIERS, module


def test_rooms_below_the_deciding_ones_are_the_carriers() -> None:
    """The layers of import-linter are what keeps a carrier from importing, and so hiding, a module that decides."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["id"] == "arrows")
    assert set(layers[layers.index("pieces") :]) == set(CARRIERS)
