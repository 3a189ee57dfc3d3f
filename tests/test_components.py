"""The KFP interface of every component: thin, portable, described, and strict as a pipeline is built."""

import ast
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from kfp import dsl

from gatehouse import components
from gatehouse.components.interface import Component
from gatehouse.data.component_task import verdict_facts
from gatehouse.errors import ConfigurationError, ContractBreachError, LeakageError, VerdictError
from gatehouse.store.image import image_names, stages_of
from gatehouse.store.store import ArtifactStore
from tests.components import call
from tests.source_tree import ROOT, Source, sources


def _functions() -> dict[str, tuple[Source, ast.FunctionDef]]:
    return {
        node.name: (source, node)
        for source in sources("components")
        if source.path.name == "component.py"
        for node in source.tree.body
        if isinstance(node, ast.FunctionDef)
    }


FUNCTIONS = _functions()


def test_the_public_import_has_every_component() -> None:
    folders = {path.parent.name for path in (ROOT / "components").glob("*/component.py")}
    public = {name for name in components.__all__ if isinstance(getattr(components, name), Component)}
    assert folders == public == FUNCTIONS.keys() == image_names().keys()
    assert all(getattr(components, name).python_func.__name__ == name for name in public)


@pytest.mark.parametrize("name", sorted(image_names()))
def test_kfp_may_cache_only_what_every_stage_of_a_component_keeps(name: str) -> None:
    own = [stage for stage in stages_of(name) if not stage.name.startswith("require")]  # KFP keeps no failed task.
    assert not getattr(components, name).needs.caching or all(stage.cacheable for stage in own)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_input_and_output_says_what_it_is(name: str) -> None:
    spec = getattr(components, name).component_spec
    assert spec.description
    described = [*spec.inputs.items(), *(spec.outputs or {}).items()]
    assert [key for key, port in described if not port.description] == []


def built(name: str, **inputs: Any) -> None:
    """Build a pipeline with one task."""
    compiled = dsl.importer(artifact_uri="table", artifact_class=dsl.Dataset)
    inputs = {key: compiled.output if value is ... else value for key, value in inputs.items()}
    getattr(components, name)(**inputs)


SHOP = {"columns": {"shop": {"type": "int64"}}}


@pytest.mark.parametrize(
    ("name", "inputs", "hint"),
    [
        ("validate", {"contract": SHOP | {"primary_key": ["shop"]}}, r"primary_key: .*did you mean unique\?"),
        ("validate", {"contract": SHOP | {"key": ["shop"]}}, r"key: .*did you mean unique\?"),
        ("snapshot", {"contract": {"version": 1, "tables": {"a": SHOP | {"uniq": []}}}}, r"tables\.a\.uniq: .*unique"),
        ("validate", {"contract": {"columns": {"shop": {"type": "int"}}}}, r"shop\.type: .*did you mean int64\?"),
        ("split", {"spec": {"strategy": "random", "fractions": {"train": "x"}}}, r"fractions\.train: .*number"),
        ("split", {"columns": {"key": ["shop"]}}, r"key: .*did you mean keys\?"),
        ("evaluate", {"policy": {"must_beat": ["prior"]}}, r"must_beat: .*did you mean must_beat_baseline\?"),
        ("train", {"search": {"objective": "accuracy"}}, "parameters"),
    ],
)
def test_a_wrong_dictionary_is_refused_as_the_pipeline_is_built(name: str, inputs: dict[str, Any], hint: str) -> None:
    required = dict.fromkeys(getattr(components, name).required_inputs, ...)

    @dsl.pipeline(name="own")  # type: ignore[untyped-decorator]  # kfp has no types
    def own() -> None:
        with pytest.raises(ConfigurationError, match=hint):
            built(name, **required | {"store": "store"} | inputs)
        if "contract" in inputs:
            built(name, **required | {"store": "store", "contract": SHOP})
            built(name, **required | {"store": "store", "contract": {"reference": "config/a"}})


def test_a_misspelt_or_missing_input_is_named_as_the_pipeline_is_built() -> None:
    @dsl.pipeline(name="own")  # type: ignore[untyped-decorator]  # kfp has no types
    def own() -> None:
        with pytest.raises(TypeError, match="'contarct'; did you mean contract"):
            built("validate", data=..., contarct=SHOP)
        with pytest.raises(TypeError, match="needs the input data"):
            built("validate", contract=SHOP)
        built("launch", timeout_minutes=5)  # KFP takes no 5 for a fraction.


@pytest.mark.parametrize(
    ("name", "role", "error", "inputs"),
    [
        ("compute_features", "validation", ContractBreachError, {"snapshot": None, "definitions": {}}),
        ("split", "leakage", LeakageError, {"data": None}),
        ("train", "split", VerdictError, {}),
    ],
)
def test_the_task_after_one_that_judged_ends_the_run_before_it_does_anything(
    store: ArtifactStore, tmp_path: Path, name: str, role: str, error: type[Exception], inputs: dict[str, Any]
) -> None:
    failed = dsl.Artifact(metadata={"reference": "none", **verdict_facts("fail", ["too many nulls"])})
    with pytest.raises(error, match="too many nulls"):
        call(getattr(components, name), tmp_path, store=store.address, **inputs, **{role: failed})


def test_no_input_is_optional_in_its_annotation() -> None:
    """In a pod KFP names no type of an artifact, and makes one of the annotation's: it cannot make an Optional."""
    functions = {name: getattr(components, name).python_func for name in FUNCTIONS}
    assert not [name for name, function in functions.items() if "Optional" in str(function.__annotations__)]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_body_imports_what_it_uses(name: str) -> None:
    """KFP ships the function's text alone: names of the module around it do not exist in the pod."""
    source, function = FUNCTIONS[name]
    bodies = (source.tree.body, [node for statement in function.body for node in ast.walk(statement)])
    around, bound = (
        {
            alias.asname or alias.name.split(".")[0]
            for node in nodes
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        }
        for nodes in bodies
    )
    used = {node.id for statement in function.body for node in ast.walk(statement) if isinstance(node, ast.Name)}
    # What KFP puts around the function in the pod.
    assert used & around - bound <= {"dsl", "NamedTuple", "Optional"}


def test_stages_import_where_only_the_runtime_of_kfp_is() -> None:
    ended = subprocess.run(
        [sys.executable, str(ROOT / "images" / "smoke.py")],
        env=os.environ | {"_KFP_RUNTIME": "true"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
