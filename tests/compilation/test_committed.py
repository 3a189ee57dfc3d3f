"""Committed specs are held against the code: what is stale, what is missing, and everything that is wrong at once."""

import importlib.util
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest

from gatehouse.compilation.committed import findings, refuse
from gatehouse.compilation.specification import SpecError, read_spec
from gatehouse.compilation.tags import content_digest, tags_of
from gatehouse.platforms import Platform
from gatehouse.project import Project
from tests.compiling import with_a_short_stack

ROOT = Path(__file__).parents[2]


def test_a_stale_spec_and_a_missing_one_are_both_told(compiled: Path, flights: Project, tmp_path: Path) -> None:
    for path in compiled.glob("*.yaml"):
        # Another version of the SDK makes no spec stale.
        (tmp_path / path.name).write_text(path.read_text().replace("sdkVersion: kfp-", "sdkVersion: kfp-0"))
    stale = tmp_path / "flights-training.yaml"
    stale.write_text(stale.read_text().replace("Train the candidate", "Train another"))
    (tmp_path / "flights-monitoring.yaml").unlink()
    found = with_a_short_stack(lambda: list(findings(flights, tmp_path)))
    assert found == [f"{stale} is not what the code compiles to", f"{tmp_path / 'flights-monitoring.yaml'} is missing"]
    with pytest.raises(SpecError, match="2 findings"):
        refuse(found)
    refuse([])


def test_tags_say_what_a_version_was_compiled_from_and_fit_into_kfp(compiled: Path, released: Path) -> None:
    here, there = (read_spec(folder / "flights-training.yaml") for folder in (compiled, released))
    tags = tags_of(there)
    assert tags == there.stamp | {"code": tags_of(here)["code"], "spec": content_digest(there)[:16]}
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


def test_a_comparison_of_all_projects_writes_nothing(
    script: ModuleType,
    compiled: Path,
    released: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    made: list[Path] = []

    def compile_promotion(project: Project, folder: Path, platform: Platform | None) -> list[Path]:
        if project.name != "flights":
            return []
        made.append(folder / "flights-promotion.yaml")
        folder.mkdir(exist_ok=True)
        shutil.copyfile((released if platform else compiled) / made[-1].name, made[-1])
        return made[-1:]

    old = tmp_path / "old"
    shutil.copytree(ROOT / "pipelines" / "compiled", old)
    for path in (old / "flights-promotion.yaml", old / "cluster" / "flights-promotion.yaml"):
        path.write_text(path.read_text().replace("Move the champion alias", "Move it"))
    monkeypatch.setattr(script, "compile_project", compile_promotion)
    for compared in (old, path):
        monkeypatch.setattr(sys, "argv", ["compile.py", "--diff", str(compared)])
        assert script.main() == 0
        told = capsys.readouterr().out
        assert ("cluster: flights-promotion.yaml" in told) == (compared == old)
        assert told.count("Move it") == (2 if compared == old else 1)
    assert len(made) == 4 and not any(path.is_relative_to(ROOT) or path.exists() for path in made)


def test_platforms_that_are_new_or_gone_are_told_and_a_release_is_of_platforms_only(
    script: ModuleType, tmp_path: Path
) -> None:
    name, old, new = "flights-promotion.yaml", tmp_path / "old", tmp_path / "new"
    for folder in (old / "gone", old / "both", new / "both", new / "more"):
        folder.mkdir(parents=True)
        shutil.copyfile(ROOT / "pipelines" / "compiled" / name, folder / name)
    (old / "other").mkdir()
    shutil.copyfile(old / "gone" / name, old / name)
    assert list(script._changes(old, new, release=True)) == ["- gone/", "+ more/"]
    assert list(script._changes(old, new, release=False)) == [f"- {name}", "- gone/", "+ more/"]
    with pytest.raises(SpecError, match="There is no"):
        list(script._changes(tmp_path / "nope", new, release=True))


def test_the_findings_of_all_projects_are_told_at_once(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        script, "findings", lambda project, folder, *_, **__: iter([f"{folder}: {project.name} is bad"])
    )
    monkeypatch.setattr(sys, "argv", ["compile.py", "--check"])
    assert script.main() == SpecError.exit_code
    told = capsys.readouterr().err
    assert "5 findings" in told
    for name in ("departures", "flights", "visibility", "weather"):
        assert f"pipelines/compiled: {name} is bad" in told
    assert "pipelines/compiled/cluster: flights is bad" in told
