"""What a project says of single stages reaches their tasks, and what a pipeline needs cannot be let fail."""

import json
from dataclasses import replace
from typing import Any

import pytest
from google.protobuf import json_format
from pydantic import ValidationError

from gatehouse.components import compute_features
from gatehouse.errors import ConfigurationError
from gatehouse.operations.outbox import Destination
from gatehouse.pieces.engine import Engine
from gatehouse.pipelines.catalog import Pipeline, build
from gatehouse.project.platforms import THIS_MACHINE, Platform
from gatehouse.project.project import Project, load_project
from gatehouse.project.project_file import ProjectFile, StageSettings
from gatehouse.runtime.images import LOCKS
from gatehouse.runtime.variables import ATTEMPTS, ENGINE
from gatehouse.store.stage import TOLERATE
from tests.small_example import EXAMPLE


@pytest.fixture(scope="module")
def project() -> Project:
    return load_project(EXAMPLE)


def built(project: Project, pipeline: str, platform: Platform | None, **stages: StageSettings) -> Pipeline:
    file = project.file.model_copy(update={"stages": stages, "alerts": "fail"})
    made = build(pipeline, replace(project, file=file), platform)
    assert isinstance(made, Pipeline)
    return made


def executor(pipeline: Pipeline, stage: str) -> Any:
    spec = pipeline.function.pipeline_spec
    label = spec.components[pipeline.tasks[stage].component_ref.name].executor_label
    return spec.deployment_spec["executors"][label]["container"]


def test_a_tolerated_stage_is_tried_as_often_as_told_and_never_cached_by_kfp(project: Project) -> None:
    stages = {"freshness": StageSettings(on_failure="warn"), "compute_features": StageSettings(retries=4)}
    pipeline = built(project, "training", THIS_MACHINE, **stages)
    settings = {item["name"]: item["value"] for item in executor(pipeline, "compute-features")["env"]}
    assert (settings[TOLERATE], settings[ATTEMPTS]) == ("freshness", "5")
    assert pipeline.tasks["compute-features"].retry_policy.max_retry_count == 4
    assert not pipeline.tasks["compute-features"].caching_options.enable_cache
    assert pipeline.tasks["train"].retry_policy.max_retry_count == 2


def test_kfp_caches_a_task_only_if_it_may_and_its_image_has_a_digest(project: Project) -> None:
    images = {name: f"registry/{name}@sha256:{'1' * 64}" for name in LOCKS}
    by_digest = THIS_MACHINE.model_copy(update={"images": images})

    def cached(pipeline: str, platform: Platform | None) -> set[str]:
        tasks = built(project, pipeline, platform).tasks
        return {name for name, task in tasks.items() if task.caching_options.enable_cache}

    # The last task of scoring, which is pure too, has a pod, from whose end KFP learns that all have ended.
    assert [cached(name, by_digest) for name in ("training", "monitoring", "scoring")] == [{"split"}, set(), set()]
    assert cached("training", None) == cached("training", THIS_MACHINE) == set()


def test_a_task_has_the_resources_and_the_time_of_its_component(project: Project) -> None:
    pipeline = built(project, "training", THIS_MACHINE)
    arguments = executor(pipeline, "compute-features")["resources"]
    assert (arguments["resourceCpuLimit"], arguments["resourceMemoryLimit"]) == ("2", "8G")
    platforms = json_format.MessageToDict(pipeline.function.platform_spec)["platforms"]
    config = platforms["kubernetes"]["deploymentSpec"]["executors"]
    seconds = config["exec-compute-features"]["activeDeadlineSeconds"]
    assert int(seconds) == compute_features.needs.minutes * 60


def test_tasks_with_divided_stages_are_told_the_engine(project: Project) -> None:
    divided = replace(project, file=project.file.model_copy(update={"engine": Engine(workers=3)}))
    told = {
        name: item["value"]
        for pipeline in (built(divided, name, THIS_MACHINE) for name in ("training", "scoring"))
        for name in pipeline.tasks
        for item in executor(pipeline, name)["env"]
        if item["name"] == ENGINE
    }
    assert told.keys() >= {"snapshot", "compute-features", "score"} and {*told.values()} == {'{"workers":3}'}
    assert told.keys().isdisjoint({"train", "evaluate", "register"})


def test_only_a_stage_that_no_other_needs_may_fail(project: Project) -> None:
    with pytest.raises(ConfigurationError, match=r"stages\.split\.on_failure: expected stop in training"):
        built(project, "training", None, split=StageSettings(on_failure="warn"))


def test_settings_of_a_pod_are_given_to_the_stage_that_has_one(project: Project) -> None:
    body = project.file.model_dump(mode="json")
    with pytest.raises(ValidationError, match="expected train instead of tune, which its pod runs"):
        ProjectFile.model_validate(body | {"resources": {"tune": {"cpu": "4"}}})
    with pytest.raises(ValidationError, match="expected snapshot instead of validate, which its pod runs"):
        ProjectFile.model_validate(body | {"stages": {"validate": {"retries": 4}}})
    assert ProjectFile.model_validate(body | {"stages": {"validate": {"owner": "data@acme"}}}).owners["validate"]


def test_only_the_tasks_that_send_get_the_addresses_of_webhooks(project: Project) -> None:
    told = replace(project, file=project.file.model_copy(update={"events": {"my-ops": Destination()}}))
    pipeline = build("monitoring", told, THIS_MACHINE)
    platform_spec = json_format.MessageToDict(pipeline.function.platform_spec)
    executors = platform_spec["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    holders = {
        name
        for name, executor in executors.items()
        for secret in executor.get("secretAsEnv", ())
        for key in secret["keyToEnv"]
        if key["envVar"] in ("GATEHOUSE_EVENTS_MY_OPS_WEBHOOK", "GATEHOUSE_EVENTS_MY_OPS_SECRET", "OPENLINEAGE_URL")
    }
    assert holders == {"exec-reconcile", "exec-report-end"}
    inputs = json_format.MessageToDict(pipeline.tasks["reconcile"].inputs)["parameters"]
    assert inputs["events"]["runtimeValue"]["constant"] == {"my-ops": {}}
    assert inputs["model_name"]["runtimeValue"]["constant"] == project.file.model


@pytest.mark.parametrize(
    ("engine", "name"),
    [
        ({"kind": "ray"}, "ray"),
        ({"kind": "ray", "address": "ray-head:6379"}, "ray"),
        ({"kind": "ray", "address": "http://ray-head:8265"}, "data"),
        ({"kind": "indexed"}, "data"),
    ],
)
def test_a_task_has_the_image_that_its_engine_needs(project: Project, engine: dict[str, str], name: str) -> None:
    images = {each: f"registry/{each}@sha256:{'1' * 64}" for each in LOCKS}
    platform = THIS_MACHINE.model_copy(update={"images": images, "engine": Engine.model_validate(engine)})
    pipeline = built(project, "training", platform)
    container = executor(pipeline, "compute-features")
    assert container["image"] == images[name]
    assert json.loads(next(item["value"] for item in container["env"] if item["name"] == ENGINE)) == engine
    assert executor(pipeline, "snapshot")["image"] == images[name], "its validation is divided"
    assert executor(pipeline, "evaluate")["image"] == images["training"]
    score = executor(built(project, "scoring", platform), "score")
    assert score["image"] == images["training"] and ENGINE not in {item["name"] for item in score["env"]}
