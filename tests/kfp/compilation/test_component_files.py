"""The file of every component: KFP loads it without Gatehouse, with all that its task needs."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from kfp import compiler, components, dsl, local

from gatehouse.components.interface import LONGEST_MINUTES
from gatehouse.kfp.compilation.component_files import (
    address_files,
    compile_at_addresses,
    compile_component,
    is_plain,
    public_components,
)
from gatehouse.runtime.variables import ATTEMPTS, RUN_ID
from tests.source_tree import ROOT

PUBLIC = public_components()
_VALUES = {"String": "x", "Integer": 1, "Float": 1.0, "Boolean": True, "List": [], "Dict": {}}


def _used(component: Any, path: Path) -> list[Any]:
    """The documents of a pipeline with a task of the component, with its required inputs."""
    inputs = component.component_spec.inputs or {}
    required = {name: inputs[name] for name in component.required_inputs}

    @dsl.pipeline(name="used")
    def pipeline() -> None:
        arguments = {}
        for name, parameter in required.items():
            kind = str(parameter.type)
            made = dsl.importer(artifact_uri="s3://bucket/rows", artifact_class=dsl.Artifact).output
            arguments[name] = _VALUES.get(kind, made)
        component(**arguments)

    compiler.Compiler().compile(pipeline, str(path))
    return list(yaml.safe_load_all(path.read_text()))


def _tasks(spec: dict[str, Any]) -> dict[str, Any]:
    bodies = [spec["root"], *spec["components"].values()]
    return {name: task for body in bodies for name, task in body.get("dag", {}).get("tasks", {}).items()}


FILES = [(name, file) for name in PUBLIC if name != "report_end" for file in PUBLIC[name].needs.files]


@pytest.mark.parametrize(("name", "file"), FILES)
def test_a_task_has_what_it_needs_in_python_and_from_its_file(name: str, file: str, tmp_path: Path) -> None:
    component, task = PUBLIC[name], name.replace("_", "-")
    compile_component(component, tmp_path)
    loaded = components.load_component_from_file(str(tmp_path / f"{file}.yaml"))
    defaults = {key: spec.default for key, spec in (component.component_spec.inputs or {}).items()}
    given = {key: spec.default for key, spec in (loaded.component_spec.inputs or {}).items()}
    assert (
        given.items() <= defaults.items() and {key for key in defaults.keys() - given.keys() if defaults[key]} == set()
    )
    optional = [
        spec for spec in (loaded.component_spec.inputs or {}).values() if spec.optional and "." in str(spec.type)
    ]
    assert (loaded.component_spec.outputs or {}).keys() == (component.component_spec.outputs or {}).keys()
    assert is_plain(component) or not optional, "KFP fails in a pod if an optional artifact of a pipeline is missing"
    forms = [component] + [loaded] * (not is_plain(component))
    for number, form in enumerate(forms):
        spec, platform = _used(form, tmp_path / f"{number}.yaml")
        assert not _tasks(spec)[task].get("cachingOptions", {}).get("enableCache"), "its image is named by a tag"
        assert _tasks(spec)[task]["retryPolicy"]["maxRetryCount"] == 2
        container = spec["deploymentSpec"]["executors"][f"exec-{task}"]["container"]
        assert container["resources"]["resourceMemoryLimit"] == component.needs.memory
        assert {"name": ATTEMPTS, "value": "3"} in container["env"]
        pod = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"][f"exec-{task}"]
        asked = form is loaded and "timeout_minutes" in defaults  # A parameter, which only the run knows.
        minutes = LONGEST_MINUTES if asked else component.needs.minutes
        assert pod["activeDeadlineSeconds"] == str(minutes * 60)
        assert [entry["name"] for entry in pod["fieldPathAsEnv"]] == [RUN_ID]
        assert {pod["configMapAsEnv"][0]["configMapName"], pod["secretAsEnv"][0]["secretName"]} == {
            "gatehouse-settings",
            "gatehouse-credentials",
        }


def test_a_pure_component_is_cached_where_its_image_has_a_digest(tmp_path: Path) -> None:
    """Another process names the image, as components take its name when they are imported."""
    digest = f"registry/data@sha256:{'1' * 64}"
    program = (
        "from gatehouse.components import snapshot, validate\nfrom kfp import compiler, dsl\n"
        "@dsl.pipeline\ndef p():\n"
        "    rows = dsl.importer(artifact_uri='s3://b/rows', artifact_class=dsl.Dataset).output\n"
        "    validate(data=rows).set_display_name('Mine').set_retry(5)\n"
        "    snapshot(store='s', source={})\n"
        "@dsl.pipeline\ndef q():\n"
        "    rows = dsl.importer(artifact_uri='s3://b/rows', artifact_class=dsl.Dataset).output\n"
        "    validate(data=rows).set_container_image('mine:dev')\n"
        f"    validate(data=rows).set_caching_options(False).set_container_image('{digest}')\n"
        f"compiler.Compiler().compile(q, {str(tmp_path / 'q.yaml')!r})\n"
        f"compiler.Compiler().compile(p, {str(tmp_path / 'p.yaml')!r})\n"
    )
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "GATEHOUSE_IMAGE_DATA": digest}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
    spec = next(yaml.safe_load_all((tmp_path / "p.yaml").read_text()))
    cached = {name: task["cachingOptions"].get("enableCache") for name, task in _tasks(spec).items()}
    assert (cached["validate"], cached["snapshot"]) == (True, None)
    assert _tasks(spec)["validate"]["taskInfo"]["name"] == "Mine"
    assert "retryPolicy" in _tasks(spec)["snapshot"] and _tasks(spec)["validate"]["retryPolicy"]["maxRetryCount"] == 5
    container = spec["deploymentSpec"]["executors"]["exec-validate"]["container"]
    assert container["image"] == digest and {"name": ATTEMPTS, "value": "6"} in container["env"]
    spec = next(yaml.safe_load_all((tmp_path / "q.yaml").read_text()))
    assert _tasks(spec)["validate"]["cachingOptions"] == {}, "another image, by tag"
    assert _tasks(spec)["validate-2"]["cachingOptions"] == {}, "a person switched it off"


def test_each_file_of_a_component_requires_artifacts_of_its_own(tmp_path: Path) -> None:
    for name, component in PUBLIC.items():
        for path in compile_component(component, tmp_path / name):
            inputs = components.load_component_from_file(str(path)).component_spec.inputs or {}
            artifacts = {key for key, field in inputs.items() if "." in str(field.type) and not field.optional}
            assert artifacts >= set(component.needs.files[path.stem]), path
    inputs = components.load_component_from_file(
        str(tmp_path / "retrieve_features" / "of_feast_repository.yaml")
    ).component_spec.inputs
    assert "repository_address" not in inputs, "it excludes the repository, which is required"


def test_a_pipeline_at_addresses_takes_no_artifact_and_runs(tmp_path: Path) -> None:
    """KFP's UI offers a field for each parameter, and none for an artifact."""
    for name, component in PUBLIC.items():
        for path in compile_at_addresses(component, tmp_path / name):
            spec = next(yaml.safe_load_all(path.read_text()))
            inputs = spec["root"]["inputDefinitions"]
            assert "artifacts" not in inputs, path
            assert all("defaultValue" not in inputs["parameters"][key] for key in address_files(component)[path.name])
    rows = "".join(f"{number % 2},{number % 2 * 0.5 + number / 1000}\n" for number in range(400))
    (tmp_path / "rows.csv").write_text(f"label,score\n{rows}")
    loaded = components.load_component_from_file(str(tmp_path / "evaluate" / "of_scores_at_address.yaml"))
    local.init(local.SubprocessRunner(use_venv=False), pipeline_root=str(tmp_path / "runs"))
    judged = loaded(scores=str(tmp_path / "rows.csv"), policy={"bars": {"roc_auc": {"min": 0.6}}})
    assert judged.outputs["verdict"] == "pass"


def test_a_file_without_a_store_has_no_address_and_runs(tmp_path: Path) -> None:
    """KFP caches it under any name of an image, so that it may write nothing but what KFP keeps."""
    loaded = {}
    for name in ("validate", "split"):
        (path,) = compile_component(PUBLIC[name], tmp_path / name)
        loaded[name] = components.load_component_from_file(str(path))
        assert "store" not in loaded[name].component_spec.inputs
    assert loaded["validate"].component_spec.inputs["baseline"].optional
    rows = "".join(f"{number % 2},{number % 2 * 0.5 + number / 1000}\n" for number in range(400))
    (tmp_path / "rows.csv").write_text(f"label,score\n{rows}")

    @dsl.pipeline(name="judges")
    def pipeline(rows: str) -> None:
        data = dsl.importer(artifact_uri=rows, artifact_class=dsl.Dataset, reimport=True).output
        contract = {"columns": {"label": {"type": "int64"}, "score": {"type": "double"}}}
        loaded["validate"](data=data, contract=contract)
        loaded["split"](data=data, label="label")

    compiler.Compiler().compile(pipeline, str(tmp_path / "judges.yaml"))
    tasks = _tasks(next(yaml.safe_load_all((tmp_path / "judges.yaml").read_text())))
    assert all(tasks[name.replace("_", "-")]["cachingOptions"]["enableCache"] for name in loaded)
    local.init(local.SubprocessRunner(use_venv=False), pipeline_root=str(tmp_path / "runs"))
    pipeline(rows=str(tmp_path / "rows.csv"))
    written = [json.loads(path.read_text()) for path in (tmp_path / "runs").rglob("executor_output.json")]
    assert [body["parameterValues"]["verdict"] for body in written] == ["pass"] * 2
