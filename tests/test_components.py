"""The KFP interface of every component: thin, portable, and the same everywhere."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.source_tree import ROOT, Source, sources

SETTINGS = {"packages_to_install": "[]", "install_kfp_package": "False"}


@dataclass(frozen=True)
class Component:
    """One function that KFP makes a component of."""

    source: Source
    function: ast.FunctionDef
    decorator: ast.Call

    def __str__(self) -> str:
        return f"{self.source.name}:{self.function.name}"

    def setting(self, name: str) -> str:
        """The source text of a keyword of the decorator; empty where it is not given."""
        values = [keyword.value for keyword in self.decorator.keywords if keyword.arg == name]
        return ast.unparse(values[0]) if values else ""


def _decorators(function: ast.FunctionDef) -> Iterator[ast.Call | ast.expr]:
    for decorator in function.decorator_list:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        if ast.unparse(called) in {"dsl.component", "component", "kfp.dsl.component"}:
            yield decorator


def _components() -> list[Component]:
    result = []
    for source in sources("components", "pipelines"):
        if "component(" not in source.path.read_text():
            continue
        for node in ast.walk(source.tree):
            if isinstance(node, ast.FunctionDef):
                for decorator in _decorators(node):
                    assert isinstance(decorator, ast.Call), f"{source.name}:{node.lineno}: decorator without settings"
                    result.append(Component(source, node, decorator))
    assert result, "no component found: this test looks in the wrong place"
    return result


COMPONENTS = _components()
every_component = pytest.mark.parametrize("component", COMPONENTS, ids=str)


@every_component
def test_a_component_installs_nothing_and_takes_its_image_from_one_place(component: Component) -> None:
    assert {name: component.setting(name) for name in SETTINGS} == SETTINGS
    assert component.setting("base_image").startswith(("image_of(", "image("))


@every_component
def test_parameters_keep_to_what_kfp_runs_everywhere(component: Component) -> None:
    arguments = component.function.args
    for argument in [*arguments.args, *arguments.kwonlyargs]:
        assert argument.annotation is not None, argument.arg
        assert "Optional" not in ast.unparse(argument.annotation), argument.arg
    assert not [default for default in arguments.defaults if ast.unparse(default) == "None"]


@every_component
def test_a_body_imports_what_it_uses(component: Component) -> None:
    """KFP ships the function's text alone: names of the module around it do not exist in the pod."""
    module_names = {
        alias.asname or alias.name.split(".")[0]
        for node in component.source.tree.body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    body = component.function.body
    bound = {
        alias.asname or alias.name.split(".")[0]
        for statement in body
        for node in ast.walk(statement)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    used = {node.id for statement in body for node in ast.walk(statement) if isinstance(node, ast.Name)}
    # What KFP puts around the function in the pod.
    assert used & module_names - bound <= {"dsl", "NamedTuple"}


def test_stages_import_where_only_the_runtime_of_kfp_is() -> None:
    ended = subprocess.run(
        [sys.executable, str(ROOT / "images" / "smoke.py")],
        env=os.environ | {"_KFP_RUNTIME": "true"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
