"""The layout of the house: where things lie, what they are called, and which way the arrows point."""

import ast
import graphlib
import re
import shutil
import subprocess
import symtable
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from grimp import build_graph

from tests.source_tree import COMPONENTS, ROOT, Source, sources

LINKS = ("components", "pipelines", "feature_repo")
MEANINGLESS_NAMES = {"utils", "util", "helpers", "helper", "common", "misc", "manager", "managers"}


@pytest.mark.parametrize("name", LINKS)
def test_one_import_root_through_three_links(name: str) -> None:
    link = ROOT / "gatehouse" / name
    assert link.is_symlink()
    assert link.readlink() == Path("..") / name


def test_a_component_is_its_kfp_interface_alone() -> None:
    folders = sorted(path.parent for path in COMPONENTS.glob("*/__init__.py"))
    assert len(folders) > 30
    for folder in folders:
        names = {path.name for path in folder.iterdir()} - {"__pycache__", "README.md"}
        assert names == {"__init__.py", "component.py"}, folder


def test_no_module_lies_loose_at_the_root() -> None:
    assert {path.name for path in (ROOT / "gatehouse").glob("*.py")} == {"__init__.py", "errors.py"}


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Imports inside functions and those for types alone count: what needs them stands in the wrong module.

    A module that is only named in a text does not count. A stage names the module that draws its page, and that module
    may import the stage, for instance for names of files; a command starts a process by the name of its module. Such a
    name is looked up when it is used, after both modules were imported.
    """
    imports = build_graph("gatehouse", cache_dir=None)
    graph = {module: imports.find_modules_directly_imported_by(module) for module in imports.modules}
    assert sum(map(len, graph.values())) > 500, "this test looks in the wrong place"
    circles = []
    while (circle := _circle(graph)) is not None:
        circles.append(" -> ".join(circle))
        graph[circle[1]].discard(circle[0])
    assert not circles


def test_a_circle_is_found() -> None:
    assert _circle({"a": {"b"}, "b": {"c"}, "c": set()}) is None
    assert set(_circle({"a": {"b"}, "b": {"c"}, "c": {"a"}}) or ()) == {"a", "b", "c"}


def _circle(graph: dict[str, set[str]]) -> list[str] | None:
    """A circle among what imports what, from one module back to it; None where there is none."""
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        found: list[str] = error.args[1]
        return found
    return None


def test_names_say_what_is_inside() -> None:
    names = {part for source in sources() for part in Path(source.name).with_suffix("").parts}
    assert len(names) > 20
    words = {word for name in names for word in [name, *name.split("_")]}
    assert words & MEANINGLESS_NAMES == set()


def test_a_function_that_raises_says_which_errors() -> None:
    """A command has none: its docstring is the text of `--help`, and every error ends it with a message."""
    rooms = [source for source in sources("components", "pipelines", "gatehouse") if "gatehouse/cli" not in source.name]
    raising = [
        (source.name, each)
        for source in rooms
        for each in _public_functions(source.tree)
        if any(map(_raises, each.body))
    ]
    assert len(raising) > 200, "this test looks in the wrong place"
    silent = [
        f"{name}:{each.lineno} {each.name}" for name, each in raising if "Raises" not in (ast.get_docstring(each) or "")
    ]
    assert not silent


def _public_functions(node: ast.Module | ast.ClassDef) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for each in node.body:
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and not each.name.startswith("_"):
            yield each
        elif isinstance(each, ast.ClassDef) and not each.name.startswith("_"):
            yield from _public_functions(each)


def _raises(node: ast.AST) -> bool:
    """Whether it raises an error of its own that leaves it: not inside `try`, and not for a class to define."""
    if isinstance(node, ast.Raise):
        return node.exc is not None and ast.unparse(node.exc) != "NotImplementedError"
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
        return False
    caught = node.body if isinstance(node, ast.Try) and node.handlers else []
    return any(_raises(each) for each in ast.iter_child_nodes(node) if each not in caught)


def test_what_benchmarks_and_generators_import_is_there() -> None:
    """No test runs them, and a benchmark that does not begin shows nothing."""
    missing = []
    for source in sources():
        if source.path.parts[len(ROOT.parts)] in ("benchmarks", "docs"):
            missing += [f"{source.name}: {each}" for each in _lacking(source.tree)]
    assert missing == []


@pytest.mark.parametrize(
    ("line", "lacking"),
    [
        ("from gatehouse.tuning.access.storage import named_url, STORAGE, os, Callable", []),
        ("from gatehouse.tuning.access.storage import parsed, secret", ["parsed", "secret"]),
        ("from gatehouse.tuning import access, gone", ["gone"]),
        ("from gatehouse.gone import anything", ["gatehouse.gone"]),
        ("import gatehouse.cli.main, gatehouse.components.gone", ["gatehouse.components.gone"]),
        ("from gatehouse import cli, gone", ["gone"]),
        ("from gatehouse.runtime.process import *", []),
        ("import numpy.gone", []),
    ],
)
def test_an_import_of_what_is_gone_is_found(line: str, lacking: list[str]) -> None:
    assert list(_lacking(ast.parse(line))) == lacking


def _lacking(tree: ast.Module) -> Iterator[str]:
    """What is imported of this repository, anywhere in a module, and is not there; nothing is run."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names if _is_ours(each.name) and not _file(each.name).exists())
        elif isinstance(node, ast.ImportFrom) and node.module and _is_ours(node.module):
            if not (file := _file(node.module)).exists():
                yield node.module
                continue
            names = {"*", *_bound(file)}
            for each in node.names:
                if each.name not in names and not _file(f"{node.module}.{each.name}").exists():
                    yield each.name


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] in ("gatehouse", "tests", "benchmarks")


def _file(module: str) -> Path:
    path = ROOT.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _bound(file: Path) -> set[str]:
    """The names that a module binds, outside of its functions and classes."""
    symbols = symtable.symtable(file.read_text(), str(file), "exec").get_symbols()
    return {each.get_name() for each in symbols if each.is_assigned() or each.is_imported()}


def test_errors_import_nothing() -> None:
    assert list(Source(ROOT / "gatehouse" / "errors.py").imports()) == []


def _declared() -> Iterator[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    for requirement in [
        *project["dependencies"],
        *(item for name in extras if name != "dev" for item in extras[name]),
    ]:
        yield _normal(re.split(r"[\[<>=!~; ]", requirement)[0])
    # Installed alone, from its own lock, as its distribution requires what nobody imports.
    for line in (ROOT / "locks" / "sketches.lock").read_text().splitlines():
        if "==" in line:
            yield _normal(line.split("==")[0])


def _normal(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()


def test_every_package_that_is_imported_is_declared() -> None:
    declared = set(_declared())
    providers = metadata.packages_distributions()
    undeclared: list[str] = []
    checked = 0
    for source in sources("components", "pipelines", "gatehouse", "feature_repo"):
        for name, line in source.imports():
            top = name.split(".")[0]
            if top in sys.stdlib_module_names or top == "gatehouse":
                continue
            distributions = {_normal(item) for item in providers.get(top, [top])}
            checked += 1
            if not distributions & declared:
                undeclared.append(f"{source.name}:{line} imports {name}, of {', '.join(sorted(distributions))}")
    assert checked > 20
    assert not undeclared


def test_the_wheel_holds_what_the_links_lead_to(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    for name in ("gatehouse", *LINKS):
        left_out = shutil.ignore_patterns("__pycache__", "compiled")
        shutil.copytree(ROOT / name, tree / name, symlinks=True, ignore=left_out)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree / name)
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(tmp_path)]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, str(tree)], check=True)
    held = set(zipfile.ZipFile(next(tmp_path.glob("*.whl"))).namelist())
    expected = {
        f"gatehouse/{path.relative_to(ROOT).as_posix()}"
        for name in LINKS
        for path in (ROOT / name).rglob("*")
        if path.suffix in {".py", ".sql", ".yaml"} and not {"__pycache__", "compiled"} & set(path.parts)
    }
    assert len(expected) > 50
    assert expected | {"gatehouse/py.typed", "gatehouse/cli/main.py"} <= held


def _pins(lock: str) -> set[str]:
    return set(re.findall(r"^([a-z0-9][a-z0-9._-]*==[^ ]+)", (ROOT / "locks" / lock).read_text(), re.MULTILINE))


IMAGES = ["control.lock", "data.lock", "training.lock"]


@pytest.mark.parametrize("lock", ["run.lock", *IMAGES])
def test_locks_agree(lock: str) -> None:
    assert len(_pins(lock)) > 20
    assert _pins(lock) <= _pins("dev.lock")


def test_a_run_can_publish_to_buckets_and_submit() -> None:
    assert {"botocore", "google-cloud-storage", "kfp", "s3fs"} <= {pin.partition("==")[0] for pin in _pins("run.lock")}


@pytest.mark.parametrize("lock", ["run.lock", "dev.lock", "torch-gpu.lock", *IMAGES])
def test_a_lock_is_complete_and_names_no_index(lock: str) -> None:
    text = (ROOT / "locks" / lock).read_text()
    assert "://" not in text
    assert lock == "torch-gpu.lock" or not re.search(r"^(-|nvidia(?!-ml-py==)|triton|torch==)", text, re.MULTILINE)
    entries = re.split(r"^(?=[a-z0-9])", text, flags=re.MULTILINE)[1:]
    assert [entry.splitlines()[0] for entry in entries if "--hash=sha256:" not in entry] == []
