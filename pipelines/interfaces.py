"""The KFP component of a stage, from the component's folder."""

import ast
import importlib
from functools import cache
from typing import Any


@cache
def component_of(name: str) -> Any:
    """The KFP component `name`, from `components/<name>/component.py`.

    Its program has no docstring: KFP has read it when it made the component, and Argo keeps each program four times.
    """
    component = getattr(importlib.import_module(f"gatehouse.components.{name}.component"), name)
    *command, program = component.component_spec.implementation.container.command
    function = ast.parse(program).body[-1]
    assert isinstance(function, ast.FunctionDef)
    doc, lines = function.body[0], program.splitlines(keepends=True)
    if ast.get_docstring(function) is not None:
        assert doc.end_lineno is not None
        del lines[doc.lineno - 1 : doc.end_lineno]
    component.component_spec.implementation.container.command = [*command, "".join(lines)]
    return component
