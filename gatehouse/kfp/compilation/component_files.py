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


def compile_at_addresses(component: Component, folder: Path) -> list[Path]:
    """Write each file of a component that requires artifacts as a pipeline that imports them; returns the files.

    It takes the addresses of the artifacts, as a person can give no artifact in KFP's UI.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, artifacts in address_files(component).items():
        Compiler().compile(_around(component, artifacts, imported=True), str(folder / name))
    return [folder / name for name in address_files(component)]


def address_files(component: Component) -> dict[str, tuple[str, ...]]:
    """The names of these files, each with the artifacts that it imports."""
    required = [name for name in component.required_inputs if artifact_class(component, name)]
    named = {name: tuple(dict.fromkeys((*required, *own))) for name, own in component.needs.files.items()}
    return {f"{name}_at_address.yaml".removeprefix("component_"): own for name, own in named.items() if own}


def artifact_class(component: Component, name: str) -> Any:
    """The class of an artifact that is an input; None for a parameter."""
    annotation = inspect.signature(component.python_func).parameters[name].annotation
    origin = getattr(annotation, "__origin__", None)
    return origin if isinstance(origin, type) and issubclass(origin, dsl.Artifact) else None


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


def _around(component: Component, artifacts: Collection[str], imported: bool = False) -> Any:
    """A pipeline with the inputs and outputs of a component, and one task. KFP reads its signature and docstring.

    Of optional artifacts it has only these, and requires them; it has no address in their place. With `imported`, these
    parameters are addresses.
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
        if imported and name in artifacts:
            parameter = parameter.replace(annotation=str)
        taken.append(parameter)
    order = sorted(taken, key=lambda parameter: parameter.default is not inspect.Parameter.empty)

    def pipeline(*values: Any) -> Any:
        arguments = dict(zip((parameter.name for parameter in order), values, strict=True))
        for name in artifacts if imported else ():
            made = dsl.importer(arguments[name], artifact_class(component, name), reimport=True)
            arguments[name] = made.set_display_name(f"Import {name}").output
        task = component(**arguments)
        return outputs(**{name: task.outputs[name] for name in fields}) if fields else None

    signature = inspect.Signature(order, return_annotation=outputs)
    setattr(pipeline, "__signature__", signature)  # noqa: B010 - KFP reads it, and mypy knows none of a function.
    pipeline.__annotations__ = {parameter.name: parameter.annotation for parameter in order} | {"return": outputs}
    pipeline.__doc__ = function.__doc__
    return dsl.pipeline(name=f"gatehouse-{function.__name__.replace('_', '-')}")(pipeline)
