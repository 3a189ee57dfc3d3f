"""Compiled specs: current, within the policy, and a check that can fail."""

import dataclasses
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

import gatehouse
from gatehouse.compilation import SpecError, breaches, check_project, compile_project
from gatehouse.components.calibration.spec import CalibrationSpec
from gatehouse.components.integration.spec import IntegrationSpec
from gatehouse.components.probing.spec import ProbeSpec
from gatehouse.components.training.spec import train_spec
from gatehouse.driver import cut_after
from gatehouse.errors import ConfigurationError
from gatehouse.pipelines.catalog import build, names
from gatehouse.project import Project, load_project
from tests.compiling import with_a_short_stack

EXAMPLE = Path(gatehouse.__file__).parent / "pipelines" / "projects" / "flights"
ENDS = ["require_success", "report_end"]
KNOBS = {"store", "source", "window", "seed", "force", "backfill"}


@pytest.fixture(scope="module")
def project() -> Project:
    return load_project(EXAMPLE)


@pytest.fixture(scope="module")
def compiled(project: Project, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compiled")
    with_a_short_stack(compile_project, project, folder)
    return folder


def test_every_pipeline_compiles_and_keeps_the_policy(compiled: Path, project: Project) -> None:
    for name in names():
        assert list(breaches(compiled / f"flights-{name}.yaml")) == []
    with_a_short_stack(check_project, project, compiled)


def test_the_form_in_the_ui_shows_the_few_parameters_that_a_person_changes(compiled: Path) -> None:
    spec = next(yaml.load_all((compiled / "flights-training.yaml").read_text(), Loader=yaml.CSafeLoader))
    inputs = spec["root"]["inputDefinitions"]["parameters"]
    assert set(inputs) == KNOBS
    for parameter in inputs.values():
        assert parameter["description"] and "defaultValue" in parameter


def test_without_tuning_the_training_of_the_project_is_trained_with_the_seed_of_the_run(
    project: Project, tmp_path: Path
) -> None:
    plain = replace(project, file=project.file.model_copy(update={"tuning": None}))
    assert "tune" not in {stage for _, stage, _ in with_a_short_stack(build, "training", plain).plan}
    with_a_short_stack(compile_project, plain, tmp_path)
    spec = next(yaml.load_all((tmp_path / "flights-training.yaml").read_text(), Loader=yaml.CSafeLoader))
    given = _task(spec, "train")["inputs"]["parameters"]
    assert given["seed"] == {"componentInputParameter": "pipelinechannel--seed"}
    assert train_spec(json.loads(given["spec"]["runtimeValue"]["constant"])) == project.file.training


def test_calibration_probes_and_integration_are_tasks_only_where_they_are_asked_for(project: Project) -> None:
    usual = {stage for _, stage, _ in with_a_short_stack(build, "training", project).plan}
    assert not usual & {"calibrate", "probe", "integrate"}
    asked = {"calibration": CalibrationSpec(), "probes": ProbeSpec(), "integration": IntegrationSpec()}
    file = project.file.model_copy(update=asked)
    pipeline = with_a_short_stack(build, "training", replace(project, file=file))
    stages = [stage for _, stage, _ in pipeline.plan]
    assert stages[stages.index("train") :] == [
        "train",
        "calibrate",
        "probe",
        "integrate",
        "resolve",
        "evaluate",
        "register",
        *ENDS,
    ]
    tasks = pipeline.tasks
    suite = tasks["evaluate"].inputs.parameters["integration"].task_output_parameter
    assert (suite.producer_task, suite.output_parameter_key) == ("integrate", "integration")
    for name, parameter in (
        ("probe", "model"),
        ("integrate", "model"),
        ("resolve", "candidate"),
        ("evaluate", "model"),
        ("register", "model"),
    ):
        given = tasks[name].inputs.parameters[parameter].task_output_parameter
        assert (given.producer_task, given.output_parameter_key) == ("calibrate", "model")


def test_a_run_until_a_stage_keeps_the_tasks_up_to_it(project: Project) -> None:
    cut = cut_after("check_leakage", with_a_short_stack(build, "training", project))
    assert [stage for _, stage, _ in cut.plan][-4:] == ["retrieve_training_set", "check_leakage", *ENDS]
    assert set(cut.tasks) == {task for task, _, _ in cut.plan[:-2]}
    with pytest.raises(ConfigurationError, match=r"--until: .*found 'leakage'"):
        cut_after("leakage", with_a_short_stack(build, "training", project))


def test_a_run_until_a_stage_whose_section_the_project_lacks_says_so(project: Project) -> None:
    plain = dataclasses.replace(project, file=project.file.model_copy(update={"tuning": None}))
    with pytest.raises(ConfigurationError, match="the project has no `tuning` section"):
        cut_after("tune", with_a_short_stack(build, "training", plain))


@pytest.mark.parametrize("asks", [{"approval": "manual"}, {"inconclusive": "approval"}], ids=str)
def test_where_the_policy_asks_a_person_the_webhook_is_told_that_a_candidate_waits(
    project: Project, asks: dict[str, str]
) -> None:
    policy = project.policy.model_copy(update=asks)
    told = dataclasses.replace(project, file=project.file.model_copy(update={"alerts": "fail"}))
    both = (told, dataclasses.replace(told, policy=policy))
    plans = [with_a_short_stack(build, "training", each).plan for each in both]
    assert [title for _, _, title in plans[1] if title not in {one for _, _, one in plans[0]}] == [
        "Tell of the register"
    ]


def test_a_stale_spec_and_a_missing_one_fail_the_check(compiled: Path, project: Project, tmp_path: Path) -> None:
    for path in compiled.glob("*.yaml"):
        (tmp_path / path.name).write_text(path.read_text())
    stale = tmp_path / "flights-training.yaml"
    stale.write_text(stale.read_text().replace("Train the candidate", "Train another"))
    (tmp_path / "flights-monitoring.yaml").unlink()
    with pytest.raises(SpecError) as caught:
        with_a_short_stack(check_project, project, tmp_path)
    assert "flights-training.yaml is not what the code compiles to" in str(caught.value)
    assert "flights-monitoring.yaml is missing" in str(caught.value)


def test_a_release_names_images_by_digest(compiled: Path) -> None:
    found = list(breaches(compiled / "flights-training.yaml", release=True))
    assert found and all("is not named by digest" in breach for breach in found)


def _task(spec: dict[str, Any], name: str) -> dict[str, Any]:
    handled = next(each["dag"]["tasks"] for each in spec["components"].values() if "dag" in each)
    task: dict[str, Any] = handled[name]
    return task


def _drop_resources(spec: dict[str, Any]) -> None:
    del spec["deploymentSpec"]["executors"]["exec-split"]["container"]["resources"]["resourceMemoryLimit"]


def _cache_a_door(spec: dict[str, Any]) -> None:
    _task(spec, "register")["cachingOptions"] = {"enableCache": True}


def _drop_retries(spec: dict[str, Any]) -> None:
    del _task(spec, "split")["retryPolicy"]


def _constant(text: str) -> Callable[[dict[str, Any]], None]:
    def change(spec: dict[str, Any]) -> None:
        _task(spec, "split")["inputs"]["parameters"]["spec"]["runtimeValue"]["constant"] = text

    return change


@pytest.mark.parametrize(
    ("change", "breach"),
    [
        (_drop_resources, "resourceMemoryLimit"),
        (_cache_a_door, "cache: expected enableCache=False"),
        (_drop_retries, "retries: expected some"),
        (_constant("{{$.inputs}}"), "holds '{{\\$'"),
        (_constant("python3 -m x"), "holds 'python3'"),
        (_constant('{"password": "x"}'), "holds 'password'"),
        (_constant("x" * 20_000), "expected at most 16384"),
        (_constant("é"), "is not ASCII"),
    ],
    ids=["resources", "cache", "retries", "placeholder", "interpreter", "secret", "size", "ascii"],
)
def test_each_breach_of_the_policy_is_found(
    compiled: Path, tmp_path: Path, change: Callable[[dict[str, Any]], None], breach: str
) -> None:
    documents = list(yaml.load_all((compiled / "flights-training.yaml").read_text(), Loader=yaml.CSafeLoader))
    change(documents[0])
    broken = tmp_path / "spec.yaml"
    broken.write_text(yaml.dump_all(documents, Dumper=yaml.CSafeDumper, allow_unicode=True))
    assert any(breach.replace("\\", "") in found for found in breaches(broken))


def test_a_task_without_timeout_is_found(compiled: Path, tmp_path: Path) -> None:
    documents = list(yaml.load_all((compiled / "flights-training.yaml").read_text(), Loader=yaml.CSafeLoader))
    del documents[1]["platforms"]["kubernetes"]["deploymentSpec"]["executors"]["exec-split"]["activeDeadlineSeconds"]
    broken = tmp_path / "spec.yaml"
    broken.write_text(yaml.dump_all(documents, Dumper=yaml.CSafeDumper))
    assert "task split: has no timeout" in list(breaches(broken))


def test_columns_that_the_contract_calls_sensitive_reach_the_source(tmp_path: Path) -> None:
    folder = shutil.copytree(EXAMPLE, tmp_path / "flights")
    file = folder / "project.yaml"
    file.write_text(file.read_text().replace("../../../feature_repo", str(EXAMPLE.parents[2] / "feature_repo")))
    contract = yaml.safe_load((folder / "contract.yaml").read_text())
    contract["tables"]["flights"]["columns"]["tailnum"]["sensitive"] = True
    (folder / "contract.yaml").write_text(yaml.safe_dump(contract))
    with_a_short_stack(compile_project, load_project(folder), tmp_path)
    spec = next(yaml.load_all((tmp_path / "flights-training.yaml").read_text(), Loader=yaml.CSafeLoader))
    given = _task(spec, "snapshot")["inputs"]["parameters"]["source"]
    tables = json.loads(given["runtimeValue"]["constant"])["tables"]
    assert tables["flights"]["sensitive"] == ["tailnum"]
    assert tables["weather"]["sensitive"] == []
