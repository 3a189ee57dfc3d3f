"""`gatehouse submit` and `gatehouse schedule` as they are typed, against a server, for a project and its profile."""

import json
import re
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from typer.testing import CliRunner, Result

from gatehouse.api import schedules
from gatehouse.cli import kfp
from gatehouse.cli.kfp import submit
from gatehouse.errors import ConfigurationError
from gatehouse.kfp.compilation.compiling import compile_pipeline
from gatehouse.kfp.compilation.specification import Compiled
from gatehouse.kfp_api.answers import Run
from gatehouse.kfp_api.client import KfpApi
from gatehouse.project.project import load_project
from gatehouse.store.records import remove_record
from gatehouse.store.store import ArtifactStore
from gatehouse.store.turns import TURNS, TurnLostError
from tests.stand_ins.kfp_api import KfpServer

SCHEDULES = {
    "monitoring": "0 0 5 * * *",
    "nightly": {"pipeline": "scoring", "interval": "P1D", "sla_hours": 6, "max_concurrency": 2},
}
Cli = Callable[..., Result]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, project: Path) -> Path:
    """The small example with schedules, beside the store that a profile names."""
    folder = tmp_path_factory.mktemp("place")
    shutil.copytree(project, folder / "project")
    file = folder / "project" / "project.yaml"
    content = yaml.safe_load(file.read_text()) | {"schedules": SCHEDULES}
    file.write_text(yaml.safe_dump(content))
    profile = {
        "name": "here",
        "store": str(folder / "store"),
        "images": {name: f"example.com/{name}@sha256:{'0' * 64}" for name in ("control", "data", "training")},
        "pods": {"volumes": [{"claim": "data", "path": str(folder)}]},
        "service_account": "trainer",
        "mlflow": {"experiment": "flights"},
    }
    shutil.rmtree(folder / "project" / "platforms", ignore_errors=True)
    (folder / "project" / "platforms").mkdir()
    (folder / "project" / "platforms" / "here.yaml").write_text(yaml.safe_dump(profile))
    return folder


@pytest.fixture(scope="module")
def compiled() -> dict[str, str]:
    """What was compiled already, by pipeline."""
    return {}


@pytest.fixture
def cli(place: Path, kfp_server: KfpServer, monkeypatch: pytest.MonkeyPatch, compiled: dict[str, str]) -> Cli:
    """Types a command in the project; each pipeline is compiled once for all tests."""

    def once(name: str, project: Any, folder: Path, platform: Any) -> Path:
        target = folder / f"{project.name}-{name}.yaml"
        if name not in compiled:
            compile_pipeline(name, project, folder, platform)
            compiled[name] = target.read_text()
        target.write_text(compiled[name])
        return target

    monkeypatch.setattr(schedules, "compile_pipeline", once)
    monkeypatch.setattr("gatehouse.project.checking.check_project", load_project)
    monkeypatch.setenv("GATEHOUSE_KFP_ENDPOINT", kfp_server.endpoint)
    monkeypatch.chdir(place / "project")
    app = typer.Typer()
    app.command("submit")(submit)
    app.add_typer(kfp.app, name="schedule")

    def typed(line: str, code: int = 0) -> Result:
        result = CliRunner().invoke(app, line.split())
        assert result.exit_code == code, f"{result.output}{result.exception}"
        return result

    return typed


def test_a_pipeline_is_submitted_once(cli: Cli, kfp_server: KfpServer, place: Path) -> None:
    assert "4 to add, 0 to change" in cli("submit --dry-run --param seed=7").output
    assert not kfp_server.writes
    cli("submit --param seed=7")
    wrote = list(kfp_server.writes)
    assert "submitted before; --again" in cli("submit --param seed=7").output
    assert kfp_server.writes == wrote
    cli("submit --param seed=7 --again")
    assert kfp_server.writes == [*wrote, "POST runs"]
    first, second = kfp_server.objects.runs.values()
    assert second["display_name"] == f"{first['display_name']}-2"
    assert first["display_name"].startswith("20")
    assert (first["runtime_config"], first["service_account"]) == ({"parameters": {"seed": 7}}, "trainer")
    assert first["plugins_input"] == {"mlflow": {"experiment_name": "flights"}}
    (version,) = kfp_server.objects.pipeline_versions.values()
    assert version["tags"]["project"] == "flights" and len(version["tags"]["spec"]) == 16
    store = ArtifactStore.open(str(place / "store"))
    assert all(store.exists(config.reference) for config in load_project(place / "project").configs())


@pytest.mark.parametrize(
    ("line", "method"),
    [
        ("submit", "upload_version"),
        ("schedule apply", "upload_version"),
        ("schedule backfill nightly --windows 2013-01-01/2013-01-02", "upload_version"),
        ("schedule pause nightly", "recurring_runs"),
        ("schedule delete nightly", "recurring_runs"),
    ],
)
def test_who_lost_its_turn_sends_nothing(
    cli: Cli, kfp_server: KfpServer, place: Path, monkeypatch: pytest.MonkeyPatch, line: str, method: str
) -> None:
    if method == "recurring_runs":
        cli("schedule apply")
    objects, ask = ArtifactStore.open(str(place / "store")).objects, getattr(KfpApi, method)
    had = [dict(kfp_server.objects.runs), json.dumps(kfp_server.objects.recurring_runs)]

    def lost(*arguments: Any) -> Any:
        for key in objects.list(TURNS):
            remove_record(objects, key)
        return ask(*arguments)

    monkeypatch.setattr(KfpApi, method, lost)
    assert isinstance(cli(line, 1).exception, TurnLostError)
    assert [dict(kfp_server.objects.runs), json.dumps(kfp_server.objects.recurring_runs)] == had


@pytest.mark.parametrize(("again", "runs"), [(False, 1), (True, 3)])
def test_two_at_the_same_moment_take_turns(
    cli: Cli, kfp_server: KfpServer, monkeypatch: pytest.MonkeyPatch, again: bool, runs: int
) -> None:
    cli("submit --param seed=7" if again else "submit --dry-run")
    both, find = threading.Barrier(2), KfpApi.runs

    def in_step(api: KfpApi, **filters: str) -> list[Run]:
        output = list(find(api, **filters))
        with suppress(threading.BrokenBarrierError):
            both.wait(0.3)
        return output

    monkeypatch.setattr(KfpApi, "runs", in_step)  # Both look before either creates.
    with ThreadPoolExecutor(2) as threads:
        for ended in [threads.submit(submit, param=["seed=7"], again=again) for _ in range(2)]:
            ended.result()
    assert len({run["display_name"] for run in kfp_server.objects.runs.values()}) == runs
    assert len(kfp_server.objects.runs) == runs


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("--param seed=1 --param seed=2", "--param: .*'seed=2'"),
        ("--param sead=7 --param seed=many", "sead: (.|\n)*seed: expected a whole number, found 'many'"),
        ("--param rerun=train,evalute", "'evalute'"),
        ("--pipeline monitoring --param store=s3://other/store", "--param store: .*s3://other"),
        ("--pipeline monitoring --param source=/home/me/raw", "--param source: expected an address"),
        ("--pipeline scoring --param keys=/home/me/asked.csv", "--param keys: expected an address"),
        ("--pipeline monitoring --param window=2013", "--param window: expected START/END"),
    ],
)
def test_a_wrong_parameter_is_refused_before_anything_is_sent(
    cli: Cli, kfp_server: KfpServer, words: str, named: str
) -> None:
    error = cli(f"submit {words}", 1).exception
    assert isinstance(error, ConfigurationError) and re.search(named, str(error)), error
    assert not kfp_server.writes


ENDED = {"state": "succeeded", "stage": "", "error": "", "message": "", "last": 1.0}
BREACH = {"exit_code": 2, "message": "the contract is broken", "at": 1.0, "seconds": 0.5}


def _record(place: Path, run: str, recorded: dict[str, Any]) -> None:
    """Write records of a run into the store, by name."""
    folder = place / "store" / "runs" / run
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, body in recorded.items():
        (folder / f"{name}.json").write_text(json.dumps(body))


@pytest.mark.parametrize(
    ("state", "recorded", "code", "text"),
    [
        ("SUCCEEDED", {"end": ENDED}, 0, "succeeded."),
        ("SUCCEEDED", {}, 1, "has no end of the run"),
        ("SUCCEEDED", {"end": ENDED | {"state": "failed", "message": "no disk"}}, 1, "the run says failed: no disk"),
        ("SUCCEEDED", {"end": ENDED, "validate.1.failed": BREACH}, 2, "in validate: the contract is broken"),
        ("FAILED", {"end": ENDED}, 1, "KFP says FAILED"),
        ("FAILED", {"validate.1.failed": BREACH}, 2, "in validate: the contract is broken"),
    ],
)
def test_waiting_ends_with_the_code_of_the_run(
    cli: Cli, kfp_server: KfpServer, place: Path, state: str, recorded: dict[str, Any], code: int, text: str
) -> None:
    cli("submit")
    (run,) = kfp_server.objects.runs
    _record(place, run, recorded)
    kfp_server.objects.set_state(run, state)
    shown = cli("submit --wait", code)
    assert text in shown.output
    assert (f"{kfp_server.objects.runs[run]['display_name']} succeeded" in shown.output) is (code == 0)


def test_schedules_are_applied_paused_resumed_and_deleted(cli: Cli, kfp_server: KfpServer) -> None:
    assert "2 to add" in cli("schedule apply --dry-run").output
    assert not kfp_server.writes
    assert "! the profile's `mlflow` is left out of schedules" in cli("schedule apply").output
    assert not any(item["plugins_input"] for item in kfp_server.objects.recurring_runs.values())
    wrote = list(kfp_server.writes)
    assert "Nothing to change." in cli("schedule apply").output
    assert kfp_server.writes == wrote
    kfp_server.objects.clock += 2 * 86_400
    kfp_server.objects.fire()
    assert "0 0 5 * * *" in cli("schedule list").output
    monitoring, nightly = sorted(json.loads(cli("schedule list --json").output), key=lambda row: row["schedule"])
    assert (monitoring["when"], nightly["when"]) == ("0 0 5 * * *", "every 86400 s")
    assert monitoring["ended"] == nightly["ended"] == "RUNNING"
    assert monitoring["state"] == "enabled" and monitoring["next"].endswith("T05:00:00Z")
    body = {"display_name": "mine", "trigger": {"periodic_schedule": {"interval_second": "3600"}}}
    first = next(iter(kfp_server.objects.recurring_runs.values()))
    source = {key: first[key] for key in ("pipeline_version_reference", "experiment_id")}
    in_ui = kfp_server.objects.create_recurring_run(body | source | {"max_concurrency": "1", "mode": "ENABLE"})
    other = next(row for row in json.loads(cli("schedule list --json").output) if row["recurring_run"] == "mine")
    assert (other["schedule"], other["state"], other["when"]) == ("", "enabled", "every 3600 s")
    assert len(json.loads(cli("schedule list --json").output)) == 3
    del kfp_server.objects.recurring_runs[in_ui["recurring_run_id"]]
    cli("schedule pause nightly")
    assert "gatehouse schedule resume nightly" in cli("schedule apply").output
    cli("schedule resume nightly")
    assert {recurring_run["status"] for recurring_run in kfp_server.objects.recurring_runs.values()} == {"ENABLED"}
    cli("schedule delete monitoring")
    assert len(kfp_server.objects.recurring_runs) == 1
    assert "KFP has no schedule 'monitoring'" in str(cli("schedule pause monitoring", 1).exception)


def test_monitoring_brings_the_training_that_it_orders(cli: Cli, kfp_server: KfpServer) -> None:
    assert "pipeline flights-training" in cli("submit --pipeline monitoring --dry-run").output
    cli("submit --pipeline monitoring")
    training, monitoring = kfp_server.objects.pipeline_versions.values()
    task = Compiled("", "", monitoring["pipeline_spec"]["pipeline_spec"], {}).task("retrain")
    assert task.constants["submission"] == {
        "version": training["name"],
        "service_account": "trainer",
        "plugins_input": {"mlflow": {"experiment_name": "flights"}},
    }
    cli("schedule apply")
    assert len(kfp_server.objects.pipeline_versions) == 3  # With that of the other schedule.


def test_a_backfill_submits_each_window_once(cli: Cli, kfp_server: KfpServer) -> None:
    windows = "--windows 2013-01-01/2013-01-04/P1D"
    assert "3 to add" in cli(f"schedule backfill nightly {windows} --dry-run").output
    assert not kfp_server.objects.runs
    cli(f"schedule backfill nightly {windows} --parallel 4")
    again = cli("schedule backfill nightly --windows 2013-01-01/2013-01-05/P1D --parallel 4").output
    assert "1 to add" in again
    runs = list(kfp_server.objects.runs.values())
    assert len(runs) == 4 and "20130101-20130102" in runs[0]["display_name"]
    assert runs[0]["runtime_config"]["parameters"] == {
        "since": "2013-01-01T00:00:00Z",
        "until": "2013-01-02T00:00:00Z",
    }


def test_a_backfill_waits_for_free_places_and_says_which_windows_failed(
    cli: Cli, kfp_server: KfpServer, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[str] = []

    def ended(api: KfpApi, run: str) -> Run:
        _record(place, run, {"end": ENDED} if waited else {"validate.1.failed": BREACH})
        kfp_server.objects.set_state(run, "SUCCEEDED")
        waited.append(run)
        return api.run(run)

    monkeypatch.setattr(KfpApi, "wait", ended)  # A run of the stand-in ends when it is told to.
    windows = "schedule backfill nightly --windows 2013-01-01/2013-01-06/P1D"
    shown = cli(f"{windows} --parallel 2", 2)
    assert len(set(waited)) == 3
    assert f"{kfp_server.objects.runs[waited[0]]['display_name']} failed in validate" in shown.output
    cli(f"{windows} --parallel 2")
    assert len(waited) == 3
