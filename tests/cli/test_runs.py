"""`gatehouse runs` as a person or a program uses it, on a real MLflow database."""

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import requests
import typer
from click.testing import Result
from typer.testing import CliRunner

from gatehouse.cli.runs import app, mlflow
from gatehouse.errors import ConfigurationError
from gatehouse.notebook.store import Store
from gatehouse.server.app import create_app
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.mlflow_client import tracking_of
from tests.server.serving import client, serving

if TYPE_CHECKING:
    from mlflow import MlflowClient

RATES = ("0.00005", "0.0001", "0.0005", "0.001", "0.01")


@pytest.fixture(scope="module")
def store(
    tmp_path_factory: pytest.TempPathFactory, with_mlflow: Callable[[ArtifactStore], ArtifactStore]
) -> ArtifactStore:
    """A store with a pipeline run, and below it five trials and a failed one."""
    from mlflow.entities import Metric, Param

    made = with_mlflow(ArtifactStore.open(tmp_path_factory.mktemp("store")))
    tracking = tracking_of(made)
    assert tracking is not None
    with tracking.client() as client:
        experiment = tracking.experiment(client, "flights")
        above = client.create_run(experiment, start_time=1_000, run_name="20130115").info.run_id
        for number, rate in enumerate(RATES):
            loss = [0.7 - 0.01 * number * step for step in range(30)]
            _trial(client, experiment, above, number, {"lr": rate, "seed": "7" if number else "7.0"}, loss)
        failed = client.create_run(experiment, 9_000, {"mlflow.parentRunId": above}, "trial 5").info.run_id
        client.log_batch(failed, metrics=[Metric("loss", math.nan, 1, 0)], params=[Param("lr", "auto")])
        client.set_terminated(failed, "FAILED", 9_500)
    return made


def _trial(
    client: "MlflowClient", experiment: str, above: str, number: int, params: dict[str, str], loss: list[float]
) -> None:
    from mlflow.entities import Metric, Param

    began = 2_000 + number * 1_000
    run = client.create_run(experiment, began, {"mlflow.parentRunId": above}, f"trial {number}").info.run_id
    metrics = [Metric("loss", value, began + step, step) for step, value in enumerate(loss)]
    metrics.append(Metric("lr", 1.0, began, 0))
    system = [Metric("system/cpu_utilization_percentage", 50.0, began + step, step) for step in range(3)]
    client.log_batch(run, metrics=metrics + system, params=[Param(*param) for param in params.items()])
    client.set_terminated(run, end_time=began + 500)


def _run(store: ArtifactStore, *arguments: object, code: int = 0) -> Result:
    result = CliRunner().invoke(app, [*map(str, arguments), "--store", store.address])
    assert result.exit_code == code, f"{result.output}\n{result.exception!r}"
    return result


def test_list_shows_trials_below_their_run(store: ArtifactStore) -> None:
    lines = _run(store, "list", "--metric", "loss").stdout.splitlines()
    assert [line[10:21].rstrip() for line in lines[1:]] == ["20130115", *(f"  trial {number}" for number in range(6))]
    assert lines[0].split()[-2:] == ["duration", "loss"] and "system/" not in lines[0]
    assert "NaN" in lines[-1] and "FAILED" in lines[-1]


def test_runs_are_searched_by_ranges_and_sorted_at_all_three_doors(store: ArtifactStore) -> None:
    """The parameter is meant, not the metric of that name, and its texts compare as numbers."""
    where, expected = "lr=1e-4..1e-3", ["trial 3", "trial 2", "trial 1"]
    words = ("list", "--where", where, "--where", "status=FINISHED", "--sort", "loss")
    assert [run["name"] for run in json.loads(_run(store, *words, "--json").stdout)] == expected
    assert [line.split()[-2:] for line in _run(store, *words).stdout.splitlines()][:2] == [
        ["lr", "loss"],
        ["0.001", "−0.17"],
    ]
    assert [run.name for run in Store(store).tracked_runs(where, sort="loss", most=2)] == expected[:2]
    reader = client(store, "", "ros", "read")
    with serving(create_app(store)) as address:
        reader.address = address
        assert [run["name"] for run in reader.get("/v1/tracked-runs", where=where, sort="loss").json()] == expected
        assert reader.get("/v1/tracked-runs", where="lr=1e-4..").status_code == 200
        page = requests.get(
            f"{address}/search", params={"where": where}, cookies={"gatehouse": reader.secret}, timeout=60
        )
        assert page.text.count('type="checkbox"') == 3
        assert reader.get("/v1/tracked-runs", where="rate=1").status_code == 422
    with pytest.raises(ConfigurationError, match=r"nothing has the name 'lrr' \(did you mean lr\?\)"):
        raise _run(store, "list", "--where", "lrr=1", code=1).exception or AssertionError


def test_curves_of_several_runs_stand_on_the_same_axes_at_all_three_doors(store: ArtifactStore, tmp_path: Path) -> None:
    words = ("curves", "trial 0", "trial 4", "--metric", "loss")
    page = Path(_run(store, *words, "--no-open", "--out", tmp_path / "made" / "curves.html").stdout.strip()).read_text()
    (chart,) = re.findall(r'aria-label="loss against step">(.*)</svg></div>', page)
    assert len(re.findall(r'<path class="series s[01]"', chart)) == 2
    curves = json.loads(_run(store, *words, "--json").stdout)
    assert [(curve["label"], len(curve["points"])) for curve in curves] == [("trial 0", 30), ("trial 4", 30)]
    shown = Store(store).curves("trial 0", "trial 4", metrics=["loss"])
    assert len(shown.to_pandas()) == 60 and shown._repr_html_().startswith("<iframe sandbox srcdoc=")
    reader = client(store, "", "rose", "read")
    with serving(create_app(store)) as address:
        reader.address = address
        answer = reader.get("/v1/curves", run=["trial 0", "trial 5"]).json()
        assert [point["value"] for curve in answer["curves"] for point in curve["points"]][-1] is None, "NaN"
        cookies, query = {"gatehouse": reader.secret}, {"run": ["trial 0", "trial 4"]}
        drawn = requests.get(f"{address}/curves", params=query, cookies=cookies, timeout=60)
        assert "loss against step" in drawn.text and drawn.headers["Content-Security-Policy"].startswith("sandbox")
    refused = _run(store, "curves", *["trial 0"] * 9, "--no-open", code=1).exception
    assert isinstance(refused, ConfigurationError) and "at most 8 runs" in str(refused)


def test_mlflow_says_what_to_install_where_its_pages_are_not(store: ArtifactStore) -> None:
    app = typer.Typer()
    app.command()(mlflow)
    result = CliRunner().invoke(app, ["--store", store.address])
    assert isinstance(result.exception, ConfigurationError) and "'.[ui]'" in str(result.exception)


def test_show_has_parameters_courses_and_the_runs_below(store: ArtifactStore) -> None:
    shown = _run(store, "show", "trial 4").stdout
    assert "0.01" in shown and "█" in shown and "▁" in shown
    body = json.loads(_run(store, "show", "trial 5", "--json").stdout)
    assert body["metrics"] == {"loss": None} and body["status"] == "FAILED"
    assert len(json.loads(_run(store, "show", "20130115", "--json").stdout)["children"]) == 6


def test_compare_says_what_differs_and_numbers_that_are_equal_do_not(store: ArtifactStore) -> None:
    body = json.loads(_run(store, "compare", "trial 0", "trial 4", "--json").stdout)
    assert body["differs"] == {"lr": ["0.00005", "0.01"]} and body["same"]["seed"] == "7.0"
    assert _run(store, "compare", "trial 0", "trial 4").stdout.startswith("\ndiffers\n")
