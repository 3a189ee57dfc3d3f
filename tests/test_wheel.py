"""The wheel in fresh environments: what it holds, what works beside kfp alone, and other versions of Python."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.source_tree import ROOT

LINKS = ("components", "pipelines", "feature_repo")
KFP = "kfp>=2.17,<2.18"
pytestmark = pytest.mark.timeout(600)


def _run(*words: str | Path, code: int = 0) -> str:
    """What a program prints that ends with `code`; it sees nothing of this repository."""
    ended = subprocess.run(
        list(map(str, words)), cwd="/", capture_output=True, text=True, check=False, env={"PATH": "/usr/bin:/bin"}
    )
    assert ended.returncode == code, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


def _uv(*words: str | Path) -> str:
    return subprocess.run(
        [sys.executable, "-m", "uv", "--quiet", *map(str, words)], check=True, capture_output=True, text=True
    ).stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    for name in ("gatehouse", *LINKS):
        left_out = shutil.ignore_patterns("__pycache__", "compiled")
        shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=left_out)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / name)
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(folder)]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, str(folder)], check=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def beside_kfp(wheel: Path) -> Path:
    """Python of an environment with kfp and the wheel, without what the wheel requires."""
    folder = wheel.parent / "beside-kfp"
    _uv("venv", "--python", sys.executable, folder)
    _uv("pip", "install", "--python", folder, KFP)
    _uv("pip", "install", "--python", folder, "--no-deps", wheel)
    return folder / "bin" / "python"


def test_the_wheel_holds_what_the_links_lead_to(wheel: Path) -> None:
    content = set(zipfile.ZipFile(wheel).namelist())
    expected = {
        f"gatehouse/{path.relative_to(ROOT).as_posix()}"
        for name in LINKS
        for path in (ROOT / name).rglob("*")
        if path.suffix in {".py", ".sql", ".yaml"} and not {"__pycache__", "compiled"} & set(path.parts)
    }
    assert len(expected) > 50
    assert expected | {"gatehouse/py.typed", "gatehouse/cli/main.py"} <= content


COMPILES = """
import sys
from pathlib import Path
import gatehouse.components as components
from gatehouse.components import require, snapshot
from kfp import compiler, components as files, dsl

assert all(getattr(components, name) for name in components.__all__)

@dsl.pipeline
def own(store: str):
    taken = snapshot(store=store, source={"kind": "files", "path": "orders.csv"})
    require(verdict=taken.outputs["verdict"], reasons=taken.outputs["reasons"])

compiler.Compiler().compile(own, sys.argv[1])
loaded = [files.load_component_from_file(str(path)) for path in Path(components.__path__[0]).glob("*/component.yaml")]
assert len(loaded) > 20
"""


def test_a_pipeline_compiles_beside_kfp_alone(beside_kfp: Path, tmp_path: Path) -> None:
    _run(beside_kfp, "-c", COMPILES, tmp_path / "own.yaml")
    spec = (tmp_path / "own.yaml").read_text()
    assert "configMapAsEnv" in spec and "enableCache: true" not in spec


def test_the_command_line_says_which_extra_a_command_needs(beside_kfp: Path, wheel: Path) -> None:
    _uv("pip", "install", "--python", beside_kfp, wheel)
    gatehouse = beside_kfp.with_name("gatehouse")
    assert "models" in _run(gatehouse, "--help")
    assert "pip install '.[example]'" in _run(gatehouse, "models", "list", code=4)
    assert "'.[snapshot]'" in _run(gatehouse, "data", "list", code=4)
    assert "project.yaml" in _run(gatehouse, "check", code=4)


CONFIGURES = """
import sys
from pathlib import Path
from gatehouse.components import config

for project in Path(sys.argv[1]).iterdir():
    assert config(project / "policy.yaml") and config(project / "contract.yaml")
    kinds = ("evaluation", "source", "split", "training", "transformation", "tuning")
    assert all(isinstance(config(project / "project.yaml", kind), dict) for kind in kinds)
x = {"name": "x", "type": "int", "min": 0, "max": 2}
Path(sys.argv[2]).write_text(str({"objective": "log_loss", "parameters": [x]}))
assert config(sys.argv[2])["objective"] == [{"metric": "log_loss"}]
assert "numpy" not in sys.modules
"""


def test_configuration_is_read_with_the_extra_pipelines(beside_kfp: Path, wheel: Path, tmp_path: Path) -> None:
    _uv("pip", "install", "--python", beside_kfp, f"gatehouse[pipelines] @ {wheel.as_uri()}")
    _run(beside_kfp, "-c", CONFIGURES, ROOT / "pipelines" / "projects", tmp_path / "search.yaml")


IMPORTS = """
import importlib, pkgutil
import gatehouse

imported, left_out, folders = 0, set(), [gatehouse]
for folder in folders:
    for found in pkgutil.iter_modules(folder.__path__, f"{folder.__name__}."):
        if found.name.endswith(".example"):  # It defines components of a user's, with warnings of KFP's own.
            continue
        try:
            module = importlib.import_module(found.name)
        except ImportError as error:
            assert error.name.partition(".")[0] != "gatehouse", error
            left_out.add(error.name)
            continue
        imported += 1
        folders += [module] if found.ispkg else []
print(imported, *sorted(left_out))
"""


def _newest_python() -> Path | None:
    """An interpreter of the newest version after the one of this process, which is on the path or in pyenv."""
    for version in ("3.14", "3.13", "3.12"):
        on_path = shutil.which(f"python{version}")
        for python in [
            *([Path(on_path)] if on_path else []),
            *Path.home().glob(f".pyenv/versions/{version}*/bin/python"),
        ]:
            if subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0:
                return python
    return None


def test_every_module_is_imported_by_a_newer_python(wheel: Path) -> None:
    """All but those whose packages are too large for a test: mypy checks these for the newest version too."""
    python = _newest_python()
    if python is None:
        pytest.skip("needs an interpreter of a newer Python than 3.11")
    folder = wheel.parent / "newer"
    _uv("venv", "--python", python, folder)
    _uv("pip", "install", "--python", folder, f"gatehouse[snapshot,pipelines] @ {wheel.as_uri()}")
    imported, *left_out = _run(folder / "bin" / "python", "-W", "error", "-c", IMPORTS).split()
    assert int(imported) > 300, left_out
    assert not {"numpy", "pyarrow", "kfp", "duckdb", "pydantic"} & set(left_out)
