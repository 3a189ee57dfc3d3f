"""What the image of a component must hold: everything that the component and the pages of its stages import."""

import ast
from functools import cache

from gatehouse.store.code import closure_of, imports_of, source_of
from gatehouse.store.stage import declared_stages


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
