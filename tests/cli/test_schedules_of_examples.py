"""Every example project on a schedule: all of its pipelines, compiled for a platform, become recurring runs, once."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from typer.testing import CliRunner

from gatehouse.cli import schedule
from gatehouse.cli.kfp import Place
from gatehouse.configuration.schedule import Schedule
from gatehouse.kfp.submission import Upload
from gatehouse.project.project import Project, load_project
from gatehouse.project.signatures import NAMES
from tests.compiling import with_a_short_stack
from tests.small_example import EXAMPLE
from tests.stand_ins.kfp_api import KfpServer

PROJECTS = sorted(path.name for path in EXAMPLE.parent.iterdir())
IMAGES = {name: f"example.com/{name}@sha256:{'0' * 64}" for name in ("control", "data", "training")}


def _on_schedule(folder: Path) -> Project:
    """The project with a schedule for each pipeline; one it has stays as it is."""
    project = load_project(folder)
    every = {name: Schedule(cron=f"0 0 {hour} * * *", sla_hours=3) for hour, name in enumerate(NAMES)}
    every["scoring"] = Schedule(interval="PT6H", max_concurrency=2)
    return replace(project, file=project.file.model_copy(update={"schedules": every | project.file.schedules}))


@pytest.mark.parametrize("name", PROJECTS)
def test_all_pipelines_of_an_example_are_applied_once(
    name: str, kfp_server: KfpServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile = {
        "name": "here",
        "store": str(tmp_path / "store"),
        "images": IMAGES,
        "pods": {"volumes": [{"claim": "data", "path": str(tmp_path)}]},
    }
    (tmp_path / "here.yaml").write_text(yaml.safe_dump(profile))
    project = _on_schedule(EXAMPLE.parent / name)
    monkeypatch.setattr("gatehouse.project.checking.check_project", lambda folder: project)
    monkeypatch.setenv("GATEHOUSE_KFP_ENDPOINT", kfp_server.endpoint)
    compiled, once = Place.compiled, list[dict[str, Upload]]()

    def compiled_once(*given: Any) -> dict[str, Upload]:
        once.extend([] if once else [with_a_short_stack(compiled, *given)])
        return once[0]

    monkeypatch.setattr(Place, "compiled", compiled_once)
    app = typer.Typer()
    app.add_typer(schedule.app, name="schedule")

    def applied() -> str:
        line = ["schedule", "apply", "--project", str(project.folder), "--platform", str(tmp_path / "here.yaml")]
        result = CliRunner().invoke(app, line)
        assert result.exit_code == 0, f"{result.output}{result.exception}"
        return str(result.output)

    assert f"{len(NAMES)} to add, 0 to change" in applied()
    objects, wrote = kfp_server.objects, list(kfp_server.writes)
    assert "Nothing to change." in applied() and kfp_server.writes == wrote
    pipelines = {each["pipeline_id"]: each["name"] for each in objects.pipelines.values()}
    held = [pipelines[each["pipeline_version_reference"]["pipeline_id"]] for each in objects.recurring_runs.values()]
    assert sorted(held) == sorted(f"{project.name}-{pipeline}" for pipeline in NAMES)
    for version in objects.pipeline_versions.values():
        spec = version["pipeline_spec"]["pipeline_spec"]
        images = {each["container"]["image"] for each in spec["deploymentSpec"]["executors"].values()}
        assert images <= set(IMAGES.values())
    objects.clock += 86_400
    assert {run["display_name"].rpartition("-")[0] for run in objects.fire()}
