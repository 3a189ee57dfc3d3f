"""Code digests: what changes them and what does not."""

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from gatehouse.store import code
from gatehouse.store.carriers import CALLING, ENGINES, FORMATS, carries
from gatehouse.store.code import (
    VALIDATORS,
    closure_of,
    code_digest,
    code_of,
    distribution_of,
    forget_sources,
    imports_of,
    packages_of,
    source_of,
)
from gatehouse.store.stage import declared_stages
from gatehouse.training.checkpointing import format

STAGE = '''"""A stage."""

import logging
from typing import TYPE_CHECKING

from gatehouse.store.stage import StageModel, stage
from gatehouse.components.room.told import advice
from gatehouse.errors import SourceError

if TYPE_CHECKING:
    from gatehouse.components.room.typed import Typed

logger = logging.getLogger(__name__)
LIMIT = 3
"""The most."""
_LEAST = "expected {number} rows"


class Request(StageModel):
    """A request."""

    rows: int = 3


@stage("room", title="A room")
def room(request, store):
    """Count."""
    from gatehouse.components.room.parts import count

    logger.info("counting")
    if request.rows < 0:
        found = ", ".join(["rows", request.rows])
        raise SourceError(_told(0) + found + advice())
    written = store.write(request)
    logger.info("written %s", written)
    return count(request.rows) + LIMIT, "gatehouse.components.room.program"


def _told(number):
    return _LEAST.format(number=number)
'''
FILES = {
    "__init__": "",
    "errors": "class SourceError(Exception): ...\n",
    "components/__init__": "",
    "gatehouse/store/__init__": "",
    "gatehouse/store/stage": "import gatehouse.store.store\n",
    "gatehouse/store/store": "x = 1\n",
    "components/room/__init__": "",
    "components/room/stage": STAGE,
    "components/room/parts": "import numpy\n\n\ndef count(rows):\n    return rows + 1\n",
    "components/room/typed": "class Typed: ...\n",
    "components/room/told": "import pandas\n\n\ndef advice():\n    return 'Read again.'\n",
    "components/room/program": "import torch\n",
    "components/room/report": "from gatehouse.components.room import stage\n",
    "components/other/__init__": "",
    "components/other/stage": "x = 1\n",
}
ROOM = "gatehouse.components.room.stage"


class Tree:
    """A small package of its own whose files can be edited."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name, text in FILES.items():
            self.write(name, text)

    def write(self, name: str, text: str) -> None:
        path = self.root / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        forget_sources()

    def edit(self, name: str, old: str, new: str) -> None:
        text = (self.root / f"{name}.py").read_text()
        assert old in text
        self.write(name, text.replace(old, new))


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    monkeypatch.setattr(code, "_ROOT", tmp_path)
    yield Tree(tmp_path)  # type: ignore[misc]
    forget_sources()


def test_the_closure_holds_what_decides_and_ends_at_carriers(tree: Tree) -> None:
    names = {name.removeprefix("gatehouse.components.") for name in closure_of(ROOM, carries)}
    assert names == {"gatehouse", "gatehouse.components", "room", "room.stage", "room.parts", "room.program"}


def test_distributions_are_those_that_the_closure_imports(tree: Tree) -> None:
    assert set(code_of(ROOM).distributions) == {"numpy", "torch"}


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("room/stage", "LIMIT = 3\n", "LIMIT = 3  # of rows\n\n\n"),
        ("room/stage", '"""Count."""', '"""Count the rows."""'),
        ("room/stage", '"""The most."""', '"""The most there may be."""'),
        ("room/stage", 'logger.info("counting")', 'logger.debug("counting %s", request)'),
        ("room/stage", "SourceError(_told(0) + found + advice())", "SourceError(found, request, _told(1) + advice())"),
        ("room/stage", '", ".join(["rows"', '"; ".join(["lines"'),
        ("room/stage", "_LEAST.format(number=number)", "_LEAST.format(number=number).upper()"),
        ("room/stage", '"expected {number} rows"', '"expected at least {number} rows"'),
        ("room/told", "import pandas", "import polars"),
        ("room/stage", 'title="A room"', 'title="Another", resources=Resources(cpu="8")'),
        ("room/stage", "rows: int = 3\n", 'rows: int = Field(3, description="How many.")\n    more: str = ""\n'),
        ("room/parts", "import numpy\n", 'import numpy\n__version__ = "2"\n'),
        ("room/stage", "room.typed import Typed", "room.typed import Typed as Other"),
        ("room/parts", "rows + 1", "(rows+\n        1)"),
        ("room/report", "import stage", "import stage as counted"),
        ("artifacts/store", "x = 1", "x = 2"),
        ("other/stage", "x = 1", "x = 2"),
    ],
)
def test_an_edit_that_cannot_change_a_result_leaves_the_digest(tree: Tree, file: str, old: str, new: str) -> None:
    before = code_digest(ROOM)
    tree.edit(f"components/{file}", old, new)
    assert code_digest(ROOM) == before


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("room/stage", "LIMIT = 3", "LIMIT = 4"),
        ("room/stage", "request.rows < 0", "request.rows < 1"),
        ("room/stage", "store.write(request)", "store.write(LIMIT)"),
        ("room/stage", '["rows", request.rows]', '["rows", store.next()]'),
        ("room/stage", '["rows", request.rows]', '["rows", (LIMIT := 4)]'),
        ("room/stage", '["rows", request.rows]', "map(store.add, request.rows)"),
        ("room/stage", '["rows", request.rows]', "sorted(request.rows)"),
        ("room/stage", '["rows", request.rows]', "(row for row in request.rows)"),
        ("room/stage", '["rows", request.rows]', '["rows", request.rows[0]]'),
        ("room/stage", 'logger.info("counting")', 'logger.info("counting", store.pop())'),
        ("room/stage", 'logger.info("counting")', 'logger.info("counting %s", (LIMIT := 4))'),
        ("room/stage", 'logger.info("counting")', 'store.logger.append("counting")'),
        ("room/stage", "_told(0) + found", "_told(0) + next(store) + found"),
        ("room/stage", "_told(0) + found + advice()", "_told(0) + found + advice(), row=request.rows"),
        ("room/stage", '"expected {number} rows"', "register(1)"),
        ("room/stage", "    rows: int = 3\n", "    rows: int = 3\n    _factor: int = 2\n"),
        (
            "room/stage",
            "    rows: int = 3\n",
            "    rows: int = 3\n    lag: Annotated[int, AfterValidator(twice)] = 1\n",
        ),
        ("room/stage", "raise SourceError", "raise ValueError"),
        ("room/stage", "    rows: int = 3\n", "    rows: int = 3\n    factor: ClassVar[float] = 2.0\n"),
        ("room/stage", "    rows: int = 3\n", "    rows: int = 3\n    format_version: ClassVar[int] = 2\n"),
        ("room/parts", "rows + 1", "rows + 2"),
        ("room/parts", "import numpy", "import scipy"),
        ("room/program", "import torch", "import torch\nx = 1"),
    ],
)
def test_an_edit_that_can_change_a_result_changes_the_digest(tree: Tree, file: str, old: str, new: str) -> None:
    before = code_digest(ROOM)
    tree.edit(f"components/{file}", old, new)
    assert code_digest(ROOM) != before


def test_a_function_whose_name_ends_like_an_error_has_its_arguments(tree: Tree) -> None:
    tree.edit("components/room/parts", "rows + 1", "meanSquaredError(rows, 1)")
    before = code_digest(ROOM)
    tree.edit("components/room/parts", "Error(rows, 1)", "Error(rows, 2)")
    assert code_digest(ROOM) != before


def test_a_field_whose_type_is_imported_leaves_the_digest_but_the_methods_of_its_type_count(tree: Tree) -> None:
    tree.write("components/room/late", "class Late:\n    def end(self): return 1\n")
    before = code_digest(ROOM)
    tree.edit("components/room/stage", "import logging\n", "import logging\nfrom datetime import timedelta\n")
    tree.edit("components/room/stage", "    rows: int = 3\n", "    rows: int = 3\n    wait: timedelta = timedelta(0)\n")
    assert code_digest(ROOM) == before
    tree.edit(
        "components/room/stage", "import logging\n", "import logging\nfrom gatehouse.components.room.late import Late\n"
    )
    tree.edit("components/room/stage", "    rows: int = 3\n", "    rows: int = 3\n    late: Late\n")
    assert f"{ROOM.removesuffix('.stage')}.late" in code_of(ROOM).modules


def test_a_new_version_of_a_format_or_a_package_changes_the_digest(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    before = code_digest(ROOM)
    monkeypatch.setitem(FORMATS, "gatehouse.tracking.spool", "2")
    assert code_digest(ROOM) == before, "of a carrier that the stage does not import"
    monkeypatch.setitem(FORMATS, "gatehouse.store", "gatehouse/manifest/0")
    formats = code_digest(ROOM)
    monkeypatch.setattr(code, "_version", lambda name: "0.1")  # Another release, which nobody installs.
    assert len({before, formats, code_digest(ROOM)}) == 3


def test_what_is_installed_is_in_the_digest_of_keys_and_not_in_that_of_specs(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = code_of(ROOM)
    monkeypatch.setattr(code, "_version", lambda name: "0.1")  # Another release, which nobody installs.
    assert code_of(ROOM).source == installed.source
    assert code_of(ROOM).digest != installed.digest
    tree.edit("components/room/parts", "rows + 1", "rows + 2")
    assert code_of(ROOM).source != installed.source


def test_a_distribution_that_is_not_installed_leaves_no_trace(tree: Tree) -> None:
    before = code_of(ROOM)
    tree.edit("components/room/program", "import torch", "import torch, nowhere_installed")
    assert code_of(ROOM).distributions == before.distributions


def test_computing_a_digest_imports_nothing_of_the_stage() -> None:
    script = (
        "import sys; from gatehouse.store.code import code_digest;"
        "code_digest('gatehouse.training.stage');"
        "assert 'gatehouse.training.stage' not in sys.modules and 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


_PARSED = """
from gatehouse.store import code, source_tree

parsed, analyse = [], source_tree.analyse
source_tree.analyse = lambda source: parsed.append(source) or analyse(source)
code.closure_of("gatehouse.data.splitting.report", lambda name: False)
print(len(parsed))
"""


def test_a_source_that_one_process_parsed_no_other_parses_again(tmp_path: Path) -> None:
    def parsed() -> int:
        environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
        return int(subprocess.check_output([sys.executable, "-c", _PARSED], env=environment))

    assert parsed() > 10
    assert parsed() == 0


def test_every_package_that_a_stage_imports_has_a_distribution() -> None:
    installed = {
        name.lower().replace("_", "-") for names in metadata.packages_distributions().values() for name in names
    }
    packages = {one for stage in declared_stages().values() for one in packages_of(stage.sources().modules)}
    wanted = packages - VALIDATORS
    assert len(wanted) > 10 and "cmaes" in wanted
    assert {name for name in wanted if distribution_of(name).lower().replace("_", "-") not in installed} == set()


def test_what_a_carrier_writes_for_others_has_its_version_in_their_keys() -> None:
    formats = {name: stage.sources().formats for name, stage in declared_stages().items()}
    assert FORMATS["gatehouse.training.checkpointing"] == format.FORMAT
    assert {one for each in formats.values() for one in each} == FORMATS.keys()
    assert {name for name, each in formats.items() if "gatehouse.tracking.latency" in each} == {
        "evaluate",
        "integrate",
        "tune",
    }


def test_all_that_a_carrier_calls_is_in_the_key_of_the_stage_that_starts_it() -> None:
    found = 0
    for stage in declared_stages().values():
        modules = stage.sources().modules.keys()
        imported = {one for name in modules for one in imports_of(name)}
        engines = {one for one in imported if {*ENGINES, *CALLING} & set(one.split(".")) and not _is_folder(one)}
        for engine in engines:
            decides = {name for name in imports_of(engine) if not carries(name)}
            assert len(decides) > 3 and decides <= modules, f"{engine} runs what {stage.name} does not have in its key"
            found += 1
    assert found > 4


def _is_folder(module: str) -> bool:
    source = source_of(module)
    return source is not None and source.name == "__init__.py"


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        ("gatehouse.errors", True),
        ("gatehouse.store.objects.s3", True),
        ("gatehouse.components.train.component", True),
        ("gatehouse.data.splitting.report", True),
        ("gatehouse.data.validation.reports.card", True),
        ("gatehouse.data.statistics.beam", True),
        ("gatehouse.tuning.waits", True),
        ("gatehouse.training.checkpointing.plan", True),
        ("gatehouse.data.splitting.stage", False),
        ("gatehouse.metrics.roc_auc", False),
        ("gatehouse.data.messages.values", False),
    ],
)
def test_a_path_says_whether_a_module_carries(module: str, expected: bool) -> None:
    assert carries(module) is expected
