"""The parameters of the pipelines, read from their source, because importing them imports KFP, which takes seconds."""

import ast
from functools import cache
from pathlib import Path
from typing import Any

NAMES = ("training", "promotion", "rollout", "monitoring", "materialization", "scoring")
"""Names of the pipelines: each is a function in the module with its name in `pipelines`."""
_TYPES = {"str": "STRING", "int": "NUMBER_INTEGER", "float": "NUMBER_DOUBLE", "bool": "BOOLEAN"}


@cache
def pods() -> tuple[str, ...]:
    """The components of which a pipeline has a task."""
    folder = Path(__file__).parents[1] / "pipelines"
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.py"))]
    imports = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    names = {alias.name for node in imports if node.module == "gatehouse.components" for alias in node.names}
    return tuple(sorted(names))


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
