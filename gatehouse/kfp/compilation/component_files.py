"""Compiles components to files that KFP loads without Gatehouse: `kfp.components.load_component_from_file`."""

import inspect
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from kfp import dsl
from kfp.compiler import Compiler
from kfp.dsl import base_component
from kfp.dsl.python_component import PythonComponent
from kfp.dsl.types.type_utils import is_task_final_status_type

from gatehouse import components
from gatehouse.components.interface import Component


def public_components() -> dict[str, Component]:
    """Every component of the public import, by name."""
    public = {name: getattr(components, name) for name in components.__all__}
    return {name: component for name, component in public.items() if isinstance(component, Component)}


def compile_component(component: Component, folder: Path) -> list[Path]:
    """Write the files of a component, which are returned."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.yaml" for name in component.needs.files]
    for path, artifacts in zip(paths, component.needs.files.values(), strict=True):
        Compiler().compile(in_file(component, artifacts), str(path))
    return paths


def in_file(component: Component, artifacts: Collection[str] = ()) -> base_component.BaseComponent:
    """The component that a file holds, with these optional artifacts, which it requires.

    It is the one task of a pipeline, which holds its caching, retries, settings and credentials; KFP cannot hold them
    in a component. A component that KFP may cache, and that needs no store, is written without a store, for which it
    would need credentials, so that the person who loads it can set the resources of its task. The task of an exit
    handler is written as it is: KFP tells it how the others ended.
    """
    spec = component.component_spec
    inputs = spec.inputs or {}
    if any(is_task_final_status_type(parameter.type) for parameter in inputs.values()):
        return component
    if not is_plain(component):
        return _around(component, artifacts)
    taken = {name: parameter for name, parameter in inputs.items() if name != "store"}
    return PythonComponent(replace(spec, inputs=taken), component.python_func)


def is_plain(component: Component) -> bool:
    """Whether the file of a component is no pipeline, and its task is cached whatever its image is called."""
    return bool(component.needs.standalone)


def _around(component: Component, artifacts: Collection[str]) -> Any:
    """A pipeline with the inputs and outputs of a component, and one task. KFP reads its signature and docstring.

    Of optional artifacts it has only these, and requires them; it has no address in their place.
    """
    function, inputs = component.python_func, component.component_spec.inputs or {}
    instead = {f"{name}_{address}" for name in artifacts for address in ("address", "reference")}
    parameters = inspect.signature(function).parameters
    returned = inspect.signature(function).return_annotation
    fields = dict(getattr(returned, "__annotations__", {}))
    fields |= {name: parameter.annotation.__origin__ for name, parameter in parameters.items() if name not in inputs}
    outputs: Any = NamedTuple("Outputs", fields.items()) if fields else None

    taken = []
    for name in inputs:
        parameter = parameters[name]
        if parameter.default is None or name in instead:
            if name not in artifacts:
                continue
            parameter = parameter.replace(default=inspect.Parameter.empty)
        taken.append(parameter)
    order = sorted(taken, key=lambda parameter: parameter.default is not inspect.Parameter.empty)

    def pipeline(*values: Any) -> Any:
        task = component(**dict(zip((parameter.name for parameter in order), values, strict=True)))
        return outputs(**{name: task.outputs[name] for name in fields}) if fields else None

    signature = inspect.Signature(order, return_annotation=outputs)
    setattr(pipeline, "__signature__", signature)  # noqa: B010 - KFP reads it, and mypy knows none of a function.
    pipeline.__annotations__ = {parameter.name: parameter.annotation for parameter in order} | {"return": outputs}
    pipeline.__doc__ = function.__doc__
    return dsl.pipeline(name=f"gatehouse-{function.__name__.replace('_', '-')}")(pipeline)
