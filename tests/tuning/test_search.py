"""The search of a command: trials of any script or component, with the guarantees of `tune`."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml
from kfp import compiler, dsl
from typer.testing import CliRunner

from gatehouse import components
from gatehouse.api.tuning import experiments, under_way
from gatehouse.cli import tuning
from gatehouse.components.interface import LONGEST_MINUTES
from gatehouse.configuration.yaml_lines import read_yaml
from gatehouse.errors import ConfigurationError
from gatehouse.launchers.spec import CommandSpec
from gatehouse.notebook.artifacts import Experiment
from gatehouse.store.reference import Reference
from gatehouse.store.run import RUN_ID
from gatehouse.store.store import ArtifactStore
from gatehouse.tuning import report
from gatehouse.tuning.command_trials import filled
from gatehouse.tuning.component_trial import COMMAND as COMMAND_OF_COMPONENT
from gatehouse.tuning.component_trial import parts_of, write_component
from gatehouse.tuning.journal import studies
from gatehouse.tuning.katib import search_of
from gatehouse.tuning.stage import SearchRequest, SearchResult, search
from tests.components import call

SCRIPT = """
import json, os, sys
chosen = json.load(open(os.environ["GATEHOUSE_PARAMETERS"]))
assert sys.argv[1:] == [f"--x={chosen['x']}", chosen["kind"]]
assert os.environ["KUBEFLOW_TRAINER_OPT_KIND"] == chosen["kind"]
if chosen["kind"] == "bad" and chosen["x"] == 2:
    sys.exit(3)
for epoch in range(1, 4):
    print(f"INFO epoch={epoch} loss={(chosen['x'] - 1) ** 2 + 1 / epoch + (chosen['kind'] == 'bad')}")
"""
SPACE: list[dict[str, Any]] = [
    {"name": "x", "type": "int", "min": 0, "max": 2},
    {"name": "kind", "type": "categorical", "choices": ["good", "bad"]},
]
SPEC: dict[str, Any] = {
    "objective": {"metric": "loss", "direction": "minimize"},
    "algorithm": "GridSampler",
    "parameters": SPACE,
    "max_trial_count": 6,
    "parallel_trial_count": 3,
}
COMMAND = ["python", "script.py", "--x=${trialParameters.x}", "{kind}"]
OWNER = """
import sys
from gatehouse.store.store import ArtifactStore
from gatehouse.tuning.stage import SearchRequest, search
search(SearchRequest.model_validate_json(sys.argv[2]), ArtifactStore.open(sys.argv[1]))
"""


def _request(folder: Path, script: str = SCRIPT, command: list[str] = COMMAND, **changes: Any) -> SearchRequest:
    (folder / "program.py").write_text(script)
    files = {"code": str(folder / "program.py")}
    spec, command, _ = search_of(SPEC | changes, command)
    return SearchRequest(name="own", spec=spec, command=CommandSpec(command=tuple(command)), files=files)


def _trials(store: ArtifactStore, result: SearchResult) -> list[dict[str, Any]]:
    return list(store.read_json(result.experiment, "trials.json"))


def test_the_best_of_a_grid_is_the_best_by_brute_force(store: ArtifactStore, tmp_path: Path) -> None:
    result = search(_request(tmp_path), store)
    values = {(x, kind): (x - 1) ** 2 + 1 / 3 + (kind == "bad") for x in range(3) for kind in ("good", "bad")}
    del values[2, "bad"]
    best = min(values, key=values.__getitem__)
    assert json.loads(result.best) == {"x": best[0], "kind": best[1]} and result.value == values[best]
    trials = {(trial["parameters"]["x"], trial["parameters"]["kind"]): trial for trial in _trials(store, result)}
    assert {key: trial["metrics"]["loss"] for key, trial in trials.items() if trial["metrics"]} == values
    assert trials[2, "bad"]["state"] == "failed" and not list((Path(store.address) / "scratch").iterdir())
    assert not result.provisional and search(_request(tmp_path), store) == result
    assert len(store.measurements(result.experiment, "search")) == 1


def test_steps_stop_trials_early_and_a_command_without_the_metric_fails(store: ArtifactStore, tmp_path: Path) -> None:
    slow = SCRIPT.replace("print(", "import time; time.sleep(0.3); print(")
    stopping: dict[str, Any] = {
        "early_stopping": {"name": "MedianPruner", "n_startup_trials": 1},
        "steps_per_trial": 3,
        "parallel_trial_count": 1,
    }
    result = search(_request(tmp_path, slow, **stopping), store)
    trials = _trials(store, result)
    other, from_zero = ArtifactStore.open(tmp_path / "other"), SCRIPT.replace("epoch={epoch}", "epoch={epoch - 1}")
    request = _request(tmp_path, from_zero, **stopping, max_trial_count=1)
    (only,) = _trials(other, search(request, other))
    assert [step for step, _ in only["intermediate"]] == [1, 2, 3]
    for trial in trials:
        reported = [value - 1 / step for step, value in trial["intermediate"]]
        assert trial["state"] == "failed" or reported == pytest.approx([reported[0]] * len(reported))
    assert any(trial["state"] == "early_stopped" and len(trial["intermediate"]) < 3 for trial in trials)
    with pytest.raises(Exception, match=r"loss=VALUE"):
        search(_request(tmp_path, "print('accuracy=1')", max_failed_trial_count=0), store)


def test_a_killed_search_goes_on_with_the_same_trials(store: ArtifactStore, tmp_path: Path) -> None:
    random: dict[str, Any] = {
        "algorithm": "TPESampler",
        "parameters": [SPACE[0] | {"type": "double"}],
        "parallel_trial_count": 1,
        "max_trial_count": 5,
    }
    script = "import sys, time; x = float(sys.argv[1]); time.sleep(0.2); print(f'loss={x * x}')"
    request = _request(tmp_path, script, ["python", "script.py", "{x}"], **random)
    owner = subprocess.Popen([sys.executable, "-c", OWNER, store.address, request.model_dump_json()])
    deadline = time.monotonic() + 60
    while not list((Path(store.address) / "scratch").glob("search-*-2")):
        assert time.monotonic() < deadline and owner.poll() is None
        time.sleep(0.02)
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    other = ArtifactStore.open(tmp_path / "other")
    assert _trials(store, search(request, store)) == _trials(other, search(request, other))


def test_a_component_is_a_trial(store: ArtifactStore, tmp_path: Path) -> None:
    @dsl.component(base_image="python:3.11")  # type: ignore[untyped-decorator]  # kfp has no types
    def train(x: int, scale: float, metrics: dsl.Output[dsl.Metrics], offset: float = 1.0) -> int:
        metrics.log_metric("loss", scale * x * x + offset)
        return x

    compiler.Compiler().compile(train, str(tmp_path / "train.yaml"))
    component = read_yaml((tmp_path / "train.yaml").read_text(), "component")
    with pytest.raises(ConfigurationError, match="no input y"):
        write_component(component, {"scale": 2.0}, ["x", "y"], False, tmp_path / "component")
    with pytest.raises(ConfigurationError, match="no input data"):
        write_component(component, {"scale": 2.0}, ["x"], True, tmp_path / "component")
    with pytest.raises(ConfigurationError, match=r"arguments\.key looks like it holds a secret"):
        write_component(component, {"scale": 2.0, "key": "sk-" + "a" * 40}, ["x"], False, tmp_path / "component")
    write_component(component, {"scale": 2.0}, ["x"], False, tmp_path / "component")
    request = _request(tmp_path, command=COMMAND_OF_COMPONENT, parameters=SPACE[:1], max_trial_count=3)
    result = search(request.model_copy(update={"files": {"code": str(tmp_path / "component")}}), store)
    assert json.loads(result.best) == {"x": 0} and result.value == 1.0
    assert sorted(trial["metrics"]["Output"] for trial in _trials(store, result)) == [0, 1, 2]
    installing = dsl.component(train.python_func, base_image="python:3.11", packages_to_install=["pandas"])
    compiler.Compiler().compile(installing, str(tmp_path / "train.yaml"))
    with pytest.raises(ConfigurationError, match="pandas"):
        parts_of(read_yaml((tmp_path / "train.yaml").read_text(), "component"))
    with pytest.raises(ConfigurationError):
        parts_of({"components": {}})


def test_a_component_with_an_artifact_that_no_trial_has_is_refused(tmp_path: Path) -> None:
    @dsl.component(base_image="python:3.11")  # type: ignore[untyped-decorator]  # kfp has no types
    def train(x: int, data: dsl.Input[dsl.Dataset], rows: dsl.Input[dsl.Dataset] = None) -> int:
        return x

    compiler.Compiler().compile(train, str(tmp_path / "train.yaml"))
    component = read_yaml((tmp_path / "train.yaml").read_text(), "component")
    with pytest.raises(ConfigurationError, match="no trial has the artifact rows"):
        write_component(component, {}, ["x"], True, tmp_path / "component")
    del component["components"]["comp-train"]["inputDefinitions"]["artifacts"]["rows"]
    write_component(component, {}, ["x"], True, tmp_path / "component")
    with pytest.raises(ConfigurationError, match="no value for data"):
        write_component(component, {}, ["x"], False, tmp_path / "component")


def test_other_code_at_the_same_path_is_searched_again(
    store: ArtifactStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def best(run: str, code: str, **given: Any) -> tuple[Any, Any]:
        (tmp_path / "train.py").write_text(f"import sys; x = int(sys.argv[1]); print('loss=' + str({code}))")
        monkeypatch.setenv(RUN_ID, run)
        command = ["python", str(tmp_path / "train.py"), "{x}"]
        space = SPEC | {"parameters": SPACE[:1], "max_trial_count": 3}
        made = call(components.search, tmp_path, spec=space, command=command, store=store.address, **given)
        assert bool(made.warnings) == (code == "7")
        assert store.exists(made.experiment.metadata["reference"]) and pq.read_table(made.trials.path).num_rows == 3
        return made.best["x"], made.value

    assert best("run-1", "x") == best("run-1", "3 - x") == (0, 0)  # Another attempt of the task goes on.
    assert best("run-2", "3 - x") == (2, 1)
    assert best("run-5", "7")[1] == 7  # With a warning.
    with pytest.raises(ConfigurationError, match=r"trial: .* found both"):
        best("run-6", "x", script="pass", trial={"components": {}})
    assert best("run-3", "x", script="pass") == best("run-4", "3 - x", script="pass") == (0, 0)


@pytest.mark.parametrize("value", ["nan", "inf", "1,234.5"])
def test_a_trial_without_a_finite_objective_is_one_failed_trial(tmp_path: Path, value: str) -> None:
    script = f"import sys; x = int(sys.argv[1]); print('loss=' + ('{value}' if x else '0.5'), 'other=inf')"
    space = SPEC | {"parameters": [SPACE[0] | {"max": 1}], "max_trial_count": 2, "max_failed_trial_count": 2}
    made = call(components.search, tmp_path, spec=space, command=["python", "script.py", "{x}"], script=script)
    assert (made.best, made.value) == ({"x": 0}, 0.5)
    rows = pq.read_table(made.trials.path).sort_by("number").to_pylist()
    shown = [(row["state"], row["reason"], row["metric.loss"]) for row in rows]
    assert shown == [("succeeded", "", 0.5), ("failed", "NonFiniteValue", None)]


def test_a_page_that_cannot_be_drawn_costs_no_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> str:
        raise ZeroDivisionError

    monkeypatch.setattr(report, "page", fails)
    space = SPEC | {"parameters": SPACE[:1], "max_trial_count": 1}
    made = call(components.search, tmp_path, spec=space, command=["python", "script.py"], script="print('loss=1')")
    assert made.value == 1 and "ZeroDivisionError" in Path(made.report.path).read_text()


def test_commands_list_and_show_a_search(store: ArtifactStore, tmp_path: Path) -> None:
    space = [{"name": name, "type": "categorical", "choices": ["CA"]} for name in ("model", "state", "x")]
    script = ("print('loss=1')", ["python", "script.py"])
    result = search(_request(tmp_path, *script, max_trial_count=1, parameters=space), store)
    (row,) = Experiment(store, Reference.parse(result.experiment)).rows()
    assert (row["state"], row["parameters.state"], row["parameters.model"], row["x"]) == ("succeeded", "CA", "CA", "CA")
    shown = CliRunner().invoke(tuning.app, ["show", "own", "--store", store.address])
    assert "parameters.state" in shown.output and "succeeded" in shown.output
    ((study, about),) = studies(store.objects)
    assert [entry.name for entry in experiments(store)] == ["own"]
    begun = under_way(store, study, about)
    assert (begun.state, [trial["state"] for trial in begun.shown.trials]) == ("ended", ["succeeded"])


def _katib(**changes: Any) -> dict[str, Any]:
    feasible = [{"min": "0", "max": "2"}, {"list": ["good", "bad"]}]
    kinds = ("int", "categorical")
    spaces = zip(SPACE, kinds, feasible, strict=True)
    strategy = {"metricStrategies": [{"name": "loss", "value": "latest"}]}
    body = {
        "objective": {"type": "minimize", "objectiveMetricName": "loss"} | strategy,
        "algorithm": {"algorithmName": "grid"},
        "parallelTrialCount": 3,
        "maxTrialCount": 6,
        "parameters": [{"name": own["name"], "parameterType": kind, "feasibleSpace": of} for own, kind, of in spaces],
        "metricsCollectorSpec": {"collector": {"kind": "StdOut"}},
        "trialTemplate": {"trialParameters": [{"name": "width", "reference": "x"}], "trialSpec": {"kind": "Job"}},
    }
    return {"kind": "Experiment", "spec": body | changes}


def test_a_katib_experiment_is_the_same_search() -> None:
    same, command, none = search_of(SPEC, ["{x}", "${HOME}", '{"a": 1}', "python -c", "${trialParameters.kind}"])
    assert command[-1] == "{kind}" and not none
    katib = ["${trialParameters.width}", *command[1:]]
    assert search_of(_katib(), katib) == (same, command, [])
    changes: dict[str, Any] = {
        "objective": {"type": "minimize", "objectiveMetricName": "loss"},
        "metricsCollectorSpec": {"collector": {"kind": "File"}},
        "resumePolicy": "LongRunning",
        "earlyStopping": {"algorithmName": "other"},
    }
    for key, value in changes.items():
        spec, _, (warning,) = search_of(_katib(**{key: value}), katib)
        assert spec == same and warning.startswith(f"experiment.{key}")


@pytest.mark.parametrize(
    ("argument", "wrong"),
    [
        ("--lr={learning_rate}", "learning_rate"),
        ("${trialParameters.width}", "width"),
        ("${trialParameters.}", ""),
        ("python train.py {x} {kinds}", "kinds"),
    ],
)
def test_a_name_that_no_parameter_has_is_refused(argument: str, wrong: str) -> None:
    with pytest.raises(ConfigurationError, match=f"command: .* found '{wrong}'"):
        search_of(SPEC, ["python", argument])
    code = "print(f'loss={loss}')"
    assert search_of(SPEC, ["python", "-c", code])[1] == ["python", "-c", code]
    assert filled(["-c", code, "{x}{kind}"], {"x": 1, "kind": "{x}"}, ["x", "kind"]) == ("-c", code, "1{x}")


def test_the_time_limit_of_a_task_has_room_for_what_it_waits_for(tmp_path: Path) -> None:
    @dsl.pipeline(name="limits")  # type: ignore[untyped-decorator]  # kfp has no types
    def pipeline(minutes: float) -> None:
        components.launch(timeout_minutes=2000)
        components.launch(timeout_minutes=minutes)
        components.launch()
        components.search(spec=SPEC)

    compiler.Compiler().compile(pipeline, str(tmp_path / "limits.yaml"))
    _, platform = yaml.safe_load_all((tmp_path / "limits.yaml").read_text())
    pods = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    limits = [int(pod["activeDeadlineSeconds"]) / 60 for _, pod in sorted(pods.items())]
    assert limits == [2030, LONGEST_MINUTES, 510, LONGEST_MINUTES]


@pytest.mark.parametrize(
    "changes",
    [
        {"objective": "own_metric"},
        {"objective": {"metric": "accuracy", "direction": "minimize"}},
        {"early_stopping": "MedianPruner"},
        {"trial_settings": {"stopping.epochs": 3}},
        {"algorithm": {"name": "population", "population_size": 2}},
        {"parameters": [SPACE[0] | {"name": "a b"}]},
        {"objective": {"metric": "val loss", "direction": "minimize"}},
    ],
)
def test_a_search_that_cannot_be_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        search_of(SPEC | changes, [])
