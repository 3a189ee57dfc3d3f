"""What components are, read from their sources: the image of each, what it must hold, and the stages that it runs."""

import ast
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from gatehouse.store.code import closure_of, imports_of, source_of
from gatehouse.store.stage import Stage, declared_stages


@cache
def image_names() -> dict[str, str]:
    """The name of the image by component, from the decorators: a pod cannot import components."""
    package = source_of("gatehouse.components")
    assert package is not None
    names = {}
    for path in sorted(package.parent.glob("*/component.py")):
        (function,) = (node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef))
        (decorator,) = function.decorator_list
        assert isinstance(decorator, ast.Call)
        names[function.name] = ast.literal_eval(decorator.args[0])
    return names


def modules_of(component: str) -> frozenset[str]:
    """Dotted names of our modules that the pod of a component's task can load."""
    entries = imports_of(f"gatehouse.components.{component}.component")
    modules = frozenset().union(*(closure_of(entry, _component) for entry in entries))
    pages = {
        page.partition(":")[0]
        for stage in declared_stages().values()
        if stage.function.__module__ in modules
        for page in stage.declared.pages.values()
    }
    return modules.union(*(closure_of(page, _component) for page in pages))


def _component(module: str) -> bool:
    return module.startswith("gatehouse.components")


def stages_of(component: str, inputs: Mapping[str, Any] | None = None) -> list[Stage[Any, Any]]:
    """The stages that a component runs, in order, read from its source: a pod cannot import components.

    With the inputs of a task, those of branches that these exclude are left out; any other test counts as true.
    """
    path = source_of(f"gatehouse.components.{component}.component")
    assert path is not None
    (function,) = (node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef))
    by_place = {(stage.function.__module__, stage.function.__name__): stage for stage in declared_stages().values()}
    imported = {
        alias.asname or alias.name: by_place[node.module or "", alias.name]
        for node in ast.walk(function)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if (node.module or "", alias.name) in by_place
    }
    names = [argument.arg for argument in function.args.args]
    defaults = dict(zip(names[::-1], map(_default, function.args.defaults[::-1]), strict=False))
    values = None if inputs is None else defaults | dict(inputs)
    return list({stage.name: stage for stage in _called(function.body, imported, values)}.values())


def _called(body: Iterable[ast.AST], imported: Mapping[str, Stage[Any, Any]], values: Any) -> Iterator[Stage[Any, Any]]:
    """The stages that statements call, or give to `run` of a task, in order of the text."""
    for node in body:
        if isinstance(node, ast.If) and values is not None:
            yield from _called([node.test], imported, values)
            yield from _called(node.body if _holds(node.test, values) else node.orelse, imported, values)
            continue
        yield from _called(ast.iter_child_nodes(node), imported, values)
        if isinstance(node, ast.Call):
            runs = isinstance(node.func, ast.Attribute) and node.func.attr == "run" and node.args
            called = node.args[0] if runs else node.func
            if isinstance(called, ast.Name) and called.id in imported:
                yield imported[called.id]


def _default(node: ast.AST) -> Any:
    return ast.literal_eval(node)


def _holds(test: ast.expr, values: Mapping[str, Any]) -> bool:
    names = {node.id for node in ast.walk(test) if isinstance(node, ast.Name)}
    if not names <= values.keys() or any(isinstance(node, ast.Call | ast.Attribute) for node in ast.walk(test)):
        return True
    return bool(eval(compile(ast.Expression(test), "<component>", "eval"), {}, dict(values)))  # noqa: S307 - our own source
