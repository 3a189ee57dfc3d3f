"""The parameters of the pipelines, read from their source, because importing them imports KFP, which takes seconds."""

import ast
from functools import cache
from pathlib import Path
from typing import Any

NAMES = ("training", "promotion", "monitoring", "materialization", "scoring")
"""Names of the pipelines: each is a function in the module with its name in `pipelines`."""
_TYPES = {"str": "STRING", "int": "NUMBER_INTEGER", "float": "NUMBER_DOUBLE", "bool": "BOOLEAN"}


@cache
def parameters(pipeline: str) -> dict[str, dict[str, Any]]:
    """The parameters of a pipeline by name, as in its compiled spec, without their choices."""
    source = ast.parse((Path(__file__).parents[1] / "pipelines" / f"{pipeline}.py").read_text(encoding="utf-8"))
    functions = (node for node in ast.walk(source) if isinstance(node, ast.FunctionDef) and node.name == "pipeline")
    signature = next(functions).args
    required = len(signature.args) - len(signature.defaults)
    return {
        argument.arg: {
            "parameterType": _TYPES[ast.unparse(argument.annotation or argument)],
            "isOptional": place >= required,
        }
        for place, argument in enumerate(signature.args)
    }


@cache
def stages(pipeline: str) -> tuple[str, ...]:
    """The stages that a pipeline can have before those that end it, in its order; a project may leave some out.

    Example:
        >>> stages("promotion")
        ('promote',)
    """
    functions = {**_functions("tasks"), **_functions("data"), **_functions(pipeline)}
    entered, names = {"begin", "_add"}, list[str]()

    def visit(node: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            visit(child)
        if not isinstance(node, ast.Call):
            return
        called = node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)
        if called == "add" and node.args and isinstance(node.args[0], ast.Name):
            names.extend(_names(node.args[1:]) or [node.args[0].id])
        elif called in functions and called not in entered:
            entered.add(called)
            visit(functions[called])

    for statement in functions["pipeline"].body:
        visit(statement)
    return tuple(dict.fromkeys(names))


def _names(stages: list[ast.expr]) -> list[str]:
    """The stages that a task runs, with those that it runs for some projects only."""
    listed = [node.elts if isinstance(node, ast.List) else [node] for stage in stages for node in _choices(stage)]
    return [node.id for nodes in listed for node in nodes if isinstance(node, ast.Name)]


def _choices(stage: ast.expr) -> list[ast.expr]:
    """A stage, or the lists of `*([stage] if condition else [])`."""
    if isinstance(stage, ast.Starred) and isinstance(stage.value, ast.IfExp):
        return [stage.value.body, stage.value.orelse]
    return [stage]


def _functions(module: str) -> dict[str, ast.FunctionDef]:
    source = ast.parse((Path(__file__).parents[1] / "pipelines" / f"{module}.py").read_text(encoding="utf-8"))
    return {node.name: node for node in ast.walk(source) if isinstance(node, ast.FunctionDef)}
