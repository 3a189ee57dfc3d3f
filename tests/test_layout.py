"""The layout of the house: where things lie, what they are called, and which way the arrows point."""

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata

import pytest

from gatehouse import components
from gatehouse.kfp.compilation.component_files import address_files
from tests.source_tree import COMPONENTS, ROOT, sources


def test_a_component_is_its_kfp_interface_alone() -> None:
    folders = sorted(path.parent for path in COMPONENTS.glob("*/__init__.py"))
    assert len(folders) == 28
    for folder in folders:
        names = {path.name for path in folder.iterdir()} - {"__pycache__", "example.py"}
        component = getattr(components, folder.name)
        files = {f"{name}.yaml" for name in component.needs.files} | address_files(component).keys()
        assert names == {"__init__.py", "component.py", "README.md"} | files, folder


def test_every_stage_is_found_by_a_process_that_imported_nothing() -> None:
    program = (
        "from gatehouse.store.stage import declared_stages\n"
        "print(*{stage.function.__module__.replace('.', '/') + '.py' for stage in declared_stages().values()})"
    )
    printed = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    declaring = {item.name for item in sources("gatehouse") if "\n@stage(" in item.path.read_text()}
    assert set(printed.stdout.split()) == declaring and len(declaring) > 25


def test_no_module_lies_loose_at_the_root() -> None:
    assert {path.name for path in (ROOT / "gatehouse").glob("*.py")} == {"__init__.py", "errors.py"}


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


def _pins(lock: str) -> set[str]:
    return set(re.findall(r"^([a-z0-9][a-z0-9._-]*==[^ ]+)", (ROOT / "locks" / lock).read_text(), re.MULTILINE))


IMAGES = ["control.lock", "data.lock", "training.lock", "xgboost.lock"]


@pytest.mark.parametrize("lock", ["run.lock", *IMAGES])
def test_locks_agree(lock: str) -> None:
    assert _pins(lock) and _pins(lock) <= _pins("dev.lock")


@pytest.mark.parametrize("lock", ["run.lock", "dev.lock", "torch-gpu.lock", *IMAGES])
def test_a_lock_is_complete_and_names_no_index(lock: str) -> None:
    text = (ROOT / "locks" / lock).read_text()
    assert "://" not in text
    assert lock == "torch-gpu.lock" or not re.search(r"^(-|nvidia(?!-ml-py==)|triton|torch==)", text, re.MULTILINE)
    entries = re.split(r"^(?=[a-z0-9])", text, flags=re.MULTILINE)[1:]
    assert [entry.splitlines()[0] for entry in entries if "--hash=sha256:" not in entry] == []
