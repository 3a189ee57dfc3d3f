"""Committed specs are held against the code: what is stale, what is missing, and everything that is wrong at once."""

import importlib.util
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest

from gatehouse.kfp.compilation.compiling import refuse, stale
from gatehouse.kfp.compilation.specification import SpecError, content_of, read_spec, tags_of
from gatehouse.project.platforms import Platform
from gatehouse.project.project import Project
from gatehouse.store.canonical import digest_of

ROOT = Path(__file__).parents[3]


def test_a_stale_spec_and_a_missing_one_are_both_told(compiled: Path, flights: Project, tmp_path: Path) -> None:
    for path in compiled.glob("*.yaml"):
        # Another version of the SDK makes no spec stale.
        (tmp_path / path.name).write_text(path.read_text().replace("sdkVersion: kfp-", "sdkVersion: kfp-0"))
    changed = tmp_path / "flights-training.yaml"
    changed.write_text(changed.read_text().replace("Search and train", "Search another"))
    (tmp_path / "flights-monitoring.yaml").unlink()
    found = list(stale(flights, sorted(compiled.glob("*.yaml")), tmp_path))
    missing = f"{tmp_path / 'flights-monitoring.yaml'} is missing"
    assert found == [missing, f"{changed} is not what the code compiles to"]
    with pytest.raises(SpecError, match="2 findings"):
        refuse(found)
    refuse([])


def test_tags_say_what_a_version_was_compiled_from_and_fit_into_kfp(compiled: Path, released: Path) -> None:
    here, there = (read_spec(folder / "flights-training.yaml") for folder in (compiled, released))
    tags = tags_of(there)
    assert tags == there.stamp | {"code": tags_of(here)["code"], "spec": digest_of(content_of(there))[:16]}
    assert (tags["project"], tags["platform"]) == ("flights", "cluster")
    assert tags["spec"] != tags_of(here)["spec"]
    assert len(tags) <= 20 and all(len(text) <= 63 and "." not in key for key, text in tags.items())


def test_changed_code_changes_the_tag_of_the_code(released: Path) -> None:
    spec = read_spec(released / "flights-training.yaml")
    before = tags_of(spec)
    spec.task("split").body["inputs"]["parameters"]["code"]["runtimeValue"]["constant"] = "other"
    assert tags_of(spec)["code"] != before["code"]


@pytest.fixture
def script() -> ModuleType:
    specification = importlib.util.spec_from_file_location("compile_all", ROOT / "compile.py")
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def _copying(script: ModuleType, compiled: Path, released: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Every project gets a copy of the promotion pipeline of flights in place of its own; gives the files."""
    made: list[Path] = []

    def compile_promotion(project: Project, folder: Path, platform: Platform | None) -> list[Path]:
        made.append(folder / f"{project.name}-promotion.yaml")
        folder.mkdir(exist_ok=True)
        shutil.copyfile((released if platform else compiled) / "flights-promotion.yaml", made[-1])
        return made[-1:]

    monkeypatch.setattr(script, "compile_project", compile_promotion)  # Compiling all takes minutes.
    return made


def test_a_check_tells_broken_rules_of_all_projects_and_stale_specs_of_the_committed_one(
    script: ModuleType,
    compiled: Path,
    released: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    committed = tmp_path / "compiled"
    shutil.copytree(ROOT / "pipelines" / "compiled", committed)
    monkeypatch.setattr(script, "COMPILED", committed)  # A copy that may be stale.
    broken = [tmp_path / "here", tmp_path / "there"]
    for old, new in zip((compiled, released), broken, strict=True):
        new.mkdir()
        spec = (old / "flights-promotion.yaml").read_text()
        (new / "flights-promotion.yaml").write_text(spec.replace("Move the champion alias", "Move \xe4lias"))
    _copying(script, *broken, monkeypatch)
    monkeypatch.setattr(sys, "argv", ["compile.py", "--check"])
    assert script.main() == SpecError.exit_code
    told = capsys.readouterr().err.splitlines()
    for name in ("departures", "flights", "visibility", "weather", "cluster/flights"):
        path = committed / f"{name}-promotion.yaml"
        assert sum(f"{path}: " in line and "[ascii" in line for line in told) == 1
        assert any(f"{path} is not what the code compiles to" in line for line in told) == ("flights" in name)
    monkeypatch.setattr(sys, "argv", ["compile.py"])  # What a shell would give.
    assert script.main() == SpecError.exit_code
    assert len(list(committed.rglob("*.yaml"))) == 10
    assert "Move the champion alias" in (committed / "flights-promotion.yaml").read_text()
