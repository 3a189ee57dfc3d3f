"""What a reviewer reads of a change: each kind of it in one line, under its heading."""

import dataclasses
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from gatehouse.kfp.compilation.difference import compare, differences
from gatehouse.kfp.compilation.specification import Compiled, SpecError, read_spec

Body = dict[str, Any]


@pytest.fixture(scope="module")
def training(released: Path) -> Compiled:
    return read_spec(released / "flights-training.yaml")


def _changed(spec: Compiled, change: Callable[[Body, Body], Any]) -> list[str]:
    """The differences that `change` causes; it gets the pipeline and what the platform adds."""
    body, platform = deepcopy(spec.spec), deepcopy(spec.platform)
    change(body, platform)
    return differences(spec, dataclasses.replace(spec, spec=body, platform=platform))


def _tasks(spec: Body) -> Body:
    tasks: Body = spec["components"]["comp-exit-handler-1"]["dag"]["tasks"]
    return tasks


def _inputs(spec: Body) -> Body:
    inputs: Body = spec["root"]["inputDefinitions"]["parameters"]
    return inputs


def _container(spec: Body, name: str) -> Body:
    container: Body = spec["deploymentSpec"]["executors"][f"exec-{name}"]["container"]
    return container


def _given(spec: Body, task: str, name: str) -> Body:
    given: Body = _tasks(spec)[task]["inputs"]["parameters"][name]
    return given


def _configure(spec: Body, _: Body) -> None:
    _given(spec, "split", "spec")["runtimeValue"]["constant"]["train_until"] = "2014"


def _edit_code(spec: Body, _: Body) -> None:
    _given(spec, "split", "code")["runtimeValue"]["constant"]["split"] = "new"


def _release(spec: Body, image: str) -> None:
    for executor in spec["deploymentSpec"]["executors"].values():
        executor["container"]["image"] = image


_NEW = {"defaultValue": "", "parameterType": "STRING", "description": "Why."}


CHANGES: dict[str, tuple[Callable[[Body, Body], Any], list[str]]] = {
    "default": (
        lambda spec, _: _inputs(spec)["seed"].update(defaultValue=8.0),
        ["parameters", "  ~ seed: default: 7.0 -> 8.0"],
    ),
    "new parameter": (lambda spec, _: _inputs(spec).update(asked=_NEW), ["parameters", "  + asked"]),
    "no parameter": (lambda spec, _: _inputs(spec).pop("window"), ["parameters", "  - window"]),
    "retries": (
        lambda spec, _: _tasks(spec)["split"]["retryPolicy"].update(maxRetryCount=5),
        ["tasks", "  ~ split: retries: 2 -> 5"],
    ),
    "title": (
        lambda spec, _: _tasks(spec)["split"].update(taskInfo={"name": "Cut"}),
        ["tasks", "  ~ split: title: Split -> Cut"],
    ),
    "edge": (
        lambda spec, _: _given(spec, "split", "training_set")["taskOutputParameter"].update(producerTask="other"),
        [
            "edges",
            "  - compute-features.training_set -> split.training_set",
            "  + other.training_set -> split.training_set",
        ],
    ),
    "memory": (
        lambda spec, _: _container(spec, "split")["resources"].update(resourceMemoryLimit="9G"),
        ["resources", "  ~ split: resourceMemoryLimit: 4G -> 9G"],
    ),
    "pod": (
        lambda _, platform: platform["deploymentSpec"]["executors"]["exec-split"].update(activeDeadlineSeconds="60"),
        ["pods", "  ~ split: activeDeadlineSeconds: 3900 -> 60"],
    ),
    "secret": (
        lambda _, platform: platform["deploymentSpec"]["executors"]["exec-split"]["imagePullSecret"][0].update(
            secretName="other", secretNameParameter={}
        ),
        ["pods", "  ~ split: imagePullSecret[0].secretName: registry -> other"],
    ),
    "one of a long list": (
        lambda spec, _: _given(spec, "snapshot", "forcible")["runtimeValue"]["constant"].append("later"),
        ["configuration", "  ~ snapshot: forcible[later]: nothing -> listed"],
    ),
    "configuration": (_configure, ["configuration", "  ~ split: spec.train_until: 2013-10-01T00:00:00Z -> 2014"]),
    "removal": (
        lambda _, platform: platform["pipelineConfig"].update(resourceTtlOnCompletion=60),
        ["pipeline", "  ~ resourceTtlOnCompletion: 259200 -> 60"],
    ),
}


@pytest.mark.parametrize(("change", "said"), CHANGES.values(), ids=CHANGES)
def test_a_change_is_one_line_under_its_heading(
    training: Compiled, change: Callable[[Body, Body], Any], said: list[str]
) -> None:
    assert _changed(training, change) == said


def test_what_changed_in_every_task_is_one_line(training: Compiled) -> None:
    alike = deepcopy(training.spec)
    _release(alike, "registry/one:1")
    lines = _changed(dataclasses.replace(training, spec=alike), lambda spec, _: _release(spec, "registry/other:2"))
    assert lines == ["images", "  ~ every task: image: registry/one:1 -> registry/other:2"]


def test_what_changed_in_some_tasks_names_them(training: Compiled) -> None:
    lines = _changed(training, lambda spec, _: _release(spec, "registry/other:2"))
    assert len(lines) == 5, "a line for each of four images"
    assert [line.startswith("  ~ ") and "snapshot" in line for line in lines[1:]].count(True) == 1


def test_changed_code_is_named_by_its_digests(training: Compiled) -> None:
    lines = _changed(
        training, lambda spec, _: _given(spec, "split", "code")["runtimeValue"]["constant"].update(split="new")
    )
    assert lines == ["code", f"  ~ split: code.split: {training.task('split').constants['code']['split']} -> new"]


def test_a_task_that_is_gone_is_told_by_its_name_alone(training: Compiled) -> None:
    lines = _changed(training, lambda spec, _: _tasks(spec).pop("evaluate"))
    assert [line for line in lines if line.startswith("  - evaluate")] == ["  - evaluate"]
    assert not [line for line in lines if "~" in line and "evaluate" in line.split(":")[0]]


def test_nothing_is_told_where_nothing_changed(released: Path) -> None:
    assert compare(released, released) == []


@pytest.mark.parametrize(("old", "said"), [("/nope", "There is no /nope"), (__file__, "no compiled pipeline")])
def test_what_cannot_be_compared_is_told(old: str, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        compare(Path(old), Path(old))


def test_folders_are_compared_file_by_file(compiled: Path, released: Path, tmp_path: Path) -> None:
    promotion = "flights-promotion.yaml"
    (tmp_path / promotion).write_text((released / promotion).read_text())
    (tmp_path / "more.yaml").write_text((released / promotion).read_text())
    lines = compare(compiled, tmp_path)
    assert {"+ more.yaml", "- flights-training.yaml", promotion} <= set(lines)
    assert "    ~ store: default: nothing -> gs://acme-ml/gatehouse" in lines
    assert "    ~ name: flights-promotion-on-this-machine-only -> flights-promotion" in lines


def test_of_two_long_texts_the_part_is_shown_in_which_they_differ(training: Compiled) -> None:
    def describe(spec: Body, _: Body) -> None:
        spec["pipelineInfo"]["description"] += " It stops by itself."

    found = _changed(training, describe)
    assert found[0] == "pipeline" and found[1].startswith("  ~ description: ...")
    assert found[1].endswith(" It stops by itself.") and found[1].count("...") == 2
