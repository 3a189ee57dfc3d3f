"""The KFP interface of every component: thin, portable, and the same everywhere."""

import ast
import os
import subprocess
import sys

import pytest

from gatehouse import components
from gatehouse.components.interface import Component
from gatehouse.store.code import imports_of
from gatehouse.store.image import image_names
from gatehouse.store.stage import declared_stages
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
    modules = imports_of(f"gatehouse.components.{name}.component")
    own = [stage for stage in declared_stages().values() if stage.function.__module__ in modules]
    own = [stage for stage in own if not stage.name.startswith("require")]  # KFP keeps no failed task.
    assert not getattr(components, name).needs.caching or all(stage.cacheable for stage in own)


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
