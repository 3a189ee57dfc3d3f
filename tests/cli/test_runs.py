"""`gatehouse runs` as a person or a program uses it, on a real MLflow database."""

import json
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from click.testing import Result
from typer.testing import CliRunner

from gatehouse.cli.runs import app
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.mlflow_client import tracking_of

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
    system = [Metric("system/cpu_utilization_percentage", 50.0, began + step, step) for step in range(3)]
    client.log_batch(run, metrics=metrics + system, params=[Param(*param) for param in params.items()])
    client.set_terminated(run, end_time=began + 500)


def _run(store: ArtifactStore, *arguments: object, code: int = 0) -> Result:
    result = CliRunner().invoke(app, [*map(str, arguments), "--store", store.address])
    assert result.exit_code == code, f"{result.output}\n{result.exception!r}"
    return result


def test_list_shows_trials_below_their_run(store: ArtifactStore) -> None:
    lines = _run(store, "list").stdout.splitlines()
    assert [line[10:21].rstrip() for line in lines[1:]] == ["20130115", *(f"  trial {number}" for number in range(6))]
    assert lines[0].split()[-2:] == ["duration", "loss"] and "system/" not in lines[0]
    assert "NaN" in lines[-1] and "FAILED" in lines[-1]


def test_show_has_parameters_courses_and_the_runs_below(store: ArtifactStore) -> None:
    shown = _run(store, "show", "trial 4").stdout
    assert "0.01" in shown and "█" in shown and "▁" in shown
    assert "trial 5" in _run(store, "show", "20130115").stdout
    body = json.loads(_run(store, "show", "trial 5", "--json").stdout)
    assert body["metrics"] == {"loss": None} and body["status"] == "FAILED"


def test_compare_says_what_differs_first_and_numbers_that_are_equal_do_not(store: ArtifactStore) -> None:
    lines = _run(store, "compare", "trial 0", "trial 4").stdout.splitlines()
    assert lines[0].split()[0] == "differs" and lines[1].split() == ["lr", "0.00005", "0.01"]
    assert not any(line.startswith("seed") for line in lines)
    body = json.loads(_run(store, "compare", "trial 0", "trial 4", "--json").stdout)
    assert body["differs"] == {"lr": ["0.00005", "0.01"]} and body["same"]["seed"] == "7.0"
