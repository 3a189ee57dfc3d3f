"""What pipelines compile to: tasks, parameters, and a spec for this machine, or for one platform or another."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml

import gatehouse
from gatehouse.data.sources.catalog import parse_source
from gatehouse.errors import ConfigurationError
from gatehouse.evaluation.spec import IntegrationSpec
from gatehouse.kfp.compilation.compiling import compile_pipeline
from gatehouse.kfp.compilation.specification import read_spec
from gatehouse.kfp.driver import cut_after
from gatehouse.kfp_api.specs import check_parameters
from gatehouse.launchers.spec import PyTorchJobLaunch
from gatehouse.pipelines.catalog import build
from gatehouse.pipelines.settings import Settings
from gatehouse.project.platforms import Platform
from gatehouse.project.project import Project, load_project
from gatehouse.project.signatures import NAMES, parameters
from gatehouse.runtime.images import TRAINING, TRAINING_GPU
from gatehouse.runtime.variables import LAUNCH
from gatehouse.store.parameters import as_written
from gatehouse.store.run import LAST_STAGE
from gatehouse.training.model_spec import CalibrationSpec
from gatehouse.training.spec import train_spec

EXAMPLE = Path(gatehouse.__file__).parent / "pipelines" / "projects" / "flights"
ENDS = ["report_end"]


def test_without_tuning_the_training_of_the_project_is_trained_with_the_seed_of_the_run(
    flights: Project, tmp_path: Path
) -> None:
    plain = replace(flights, file=flights.file.model_copy(update={"tuning": None}))
    assert "tune" not in {stage for _, stage, _ in build("training", plain).plan}
    compiled = compile_pipeline("training", plain, tmp_path)
    arguments = read_spec(compiled).task("train").body["inputs"]["parameters"]
    assert arguments["seed"] == {"componentInputParameter": "pipelinechannel--seed"}
    assert train_spec(as_written(arguments["spec"]["runtimeValue"]["constant"])) == flights.file.training


def test_a_refit_and_a_leakage_alarm_are_those_of_the_project(flights: Project, tmp_path: Path) -> None:
    refit = flights.file.tuning.model_copy(update={"final_rows": "train_and_validation"})
    unsaid = flights.file.features.model_copy(update={"leakage_alarm": None})
    file = flights.file.model_copy(update={"tuning": refit, "features": unsaid})
    project = replace(flights, file=file)
    arguments = {}
    for name, item in {"usual": flights, "asked": project}.items():
        compiled = compile_pipeline("training", item, tmp_path / name)
        spec = read_spec(compiled)
        alarm = spec.task("compute-features").constants["leakage_alarm"]
        arguments[name] = [spec.task("train").constants["refit"], alarm]
    assert arguments == {"usual": [False, 0.80], "asked": [True, 0.95]}


def test_calibration_and_integration_are_run_only_where_they_are_asked_for(flights: Project) -> None:
    usual = {stage for _, stage, _ in build("training", flights).plan}
    assert not usual & {"calibrate", "compare_online", "integrate"}
    sections = {"calibration": CalibrationSpec(), "integration": IntegrationSpec()}
    file = flights.file.model_copy(update=sections)
    pipeline = build("training", replace(flights, file=file))
    stages = [stage for _, stage, _ in pipeline.plan]
    assert stages[stages.index("train") :] == [
        "train",
        "calibrate",
        "compare_online",
        "integrate",
        "resolve",
        "evaluate",
        "register",
        *ENDS,
    ]
    tasks = pipeline.tasks
    arrows = {
        (name, key): (artifact.task_output_artifact.producer_task, artifact.task_output_artifact.output_artifact_key)
        for name, task in tasks.items()
        for key, artifact in task.inputs.artifacts.items()
    }
    assert arrows["evaluate", "integration"] == ("integrate", "integration")
    assert arrows["integrate", "online"] == ("compare-online", "comparison")
    assert {arrows[name, "model"] for name in ("integrate", "evaluate", "register")} == {("train", "model")}


def test_closed_choices_are_a_list_in_the_ui_and_nothing_else_is_taken(flights: Project, compiled: Path) -> None:
    spec = read_spec(compiled / "flights-promotion.yaml")
    assert spec.inputs["action"]["literals"] == ["promote", "rollback", "archive"]
    check_parameters(spec.spec, {"action": "rollback", "reason": "free words"})
    with pytest.raises(ConfigurationError, match=r"to: expected one of staging, .*champion, found 'production'"):
        check_parameters(spec.spec, {"to": "production"})


def test_a_run_until_a_stage_keeps_the_tasks_up_to_it_and_what_requires_its_verdict(
    flights: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LAST_STAGE, "")
    cut = cut_after("check_leakage", build("training", flights))
    assert [stage for _, stage, _ in cut.plan][-3:] == ["check_leakage", "require_no_leakage", *ENDS]
    assert set(cut.tasks) == {task for task, _, _ in cut.plan[:-1]} == {"snapshot", "compute-features", "split"}
    assert os.environ[LAST_STAGE] == "require_no_leakage"
    with pytest.raises(ConfigurationError, match=r"--until: .*found 'leakage'"):
        cut_after("leakage", build("training", flights))


def test_columns_that_the_contract_calls_sensitive_reach_the_source(tmp_path: Path) -> None:
    folder = shutil.copytree(EXAMPLE, tmp_path / "flights")
    file = folder / "project.yaml"
    file.write_text(file.read_text().replace("../../../feature_repo", str(EXAMPLE.parents[2] / "feature_repo")))
    contract = yaml.safe_load((folder / "contract.yaml").read_text())
    contract["tables"]["flights"]["columns"]["tailnum"]["sensitive"] = True
    (folder / "contract.yaml").write_text(yaml.safe_dump(contract))
    compiled = compile_pipeline("training", load_project(folder), tmp_path)
    tables = read_spec(compiled).task("snapshot").constants["source"]["tables"]
    assert tables["flights"]["sensitive"] == ["tailnum"]
    assert "sensitive" not in tables["weather"]


def test_a_spec_for_a_platform_says_what_it_was_compiled_from_and_for(released: Path) -> None:
    spec = read_spec(released / "flights-promotion.yaml")
    assert (spec.spec["pipelineInfo"]["name"], spec.spec["pipelineInfo"]["displayName"]) == (
        "flights-promotion",
        "flights promotion",
    )
    assert spec.stamp == {"project": "flights", "platform": "cluster", "gatehouse": gatehouse.__version__}
    assert spec.inputs["store"]["defaultValue"] == "gs://acme-ml/gatehouse"
    assert spec.platform["pipelineConfig"] == {"resourceTtlOnCompletion": 72 * 3600}


def test_the_pods_of_a_platform_have_what_its_profile_says(released: Path, platform: Platform) -> None:
    spec = read_spec(released / "flights-training.yaml")
    train, split = spec.task("train"), spec.task("split")
    images = [spec.task(name).container["image"] for name in ("train", "evaluate", "split")]
    assert images == [platform.images[name] for name in ("training-gpu", "training", "data")]
    assert split.pod["emptyDirMounts"] == [{"volumeName": "scratch", "mountPath": "/tmp", "sizeLimit": "20Gi"}]
    assert train.container["resources"]["resourceMemoryLimit"] == "16G"
    assert train.container["resources"]["accelerator"]["resourceCount"] == "1"
    assert train.pod["nodeSelector"]["labels"] == {"cloud.google.com/gke-nodepool": "gpu"}
    assert train.pod["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    assert "tolerations" not in split.pod
    assert split.pod["nodeSelector"]["labels"] == {"cloud.google.com/gke-nodepool": "general"}
    labels = {
        "cost-center": "flights",
        "kueue.x-k8s.io/queue-name": "flights",
        "kueue.x-k8s.io/priority-class": "usual",
    }
    assert split.pod["podMetadata"]["labels"] == train.pod["podMetadata"]["labels"] == labels
    assert split.pod["securityContext"] == {"runAsUser": "1000", "runAsNonRoot": True}
    assert split.pod["imagePullPolicy"] == "IfNotPresent"
    assert [item["secretName"] for item in split.pod["imagePullSecret"]] == ["registry"]


def test_a_source_that_pods_do_not_reach_is_refused(flights: Project, platform: Platform, tmp_path: Path) -> None:
    table = {"columns": {"id": "int64", "at": "timestamp"}, "event_time": "at", "member": "orders.csv"}
    source = parse_source({"name": "shop", "kind": "files", "path": "../raw", "tables": {"orders": table}})
    moved = replace(flights, file=flights.file.model_copy(update={"source": source}))
    with pytest.raises(ConfigurationError, match=r"(?s)cannot run on the platform cluster.*source.path .*found ../raw"):
        compile_pipeline("promotion", moved, tmp_path, platform)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [({}, TRAINING), ({"resources": {"gpus": 1}}, TRAINING_GPU), ({"resources": {"gpus": 1}, "image": "ours:1"}, "")],
)
def test_a_job_on_gpus_runs_in_the_image_with_cuda_unless_the_project_names_one(
    flights: Project, platform: Platform, arguments: dict[str, Any], expected: str
) -> None:
    launch = PyTorchJobLaunch.model_validate({"kind": "pytorchjob", **arguments})
    project = replace(flights, file=flights.file.model_copy(update={"launch": launch}))
    variables: dict[str, str] = {}
    task = SimpleNamespace(set_env_variable=variables.__setitem__)
    Settings("training", project, platform)._say_launch(cast(Any, task))
    assert json.loads(variables[LAUNCH])["image"] == platform.images.get(expected, "ours:1")


def test_parameters_read_off_the_source_are_those_of_the_specs(compiled: Path) -> None:
    for name in NAMES:
        inputs = read_spec(compiled / f"flights-{name}.yaml").inputs
        kinds = {parameter: body["parameterType"] for parameter, body in inputs.items()}
        assert {parameter: body["parameterType"] for parameter, body in parameters(name).items()} == kinds
