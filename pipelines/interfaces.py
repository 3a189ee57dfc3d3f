"""The KFP component of a stage: the one that its room writes, else one that is derived from its request and result."""

import ast
import importlib
import importlib.util
import inspect
import linecache
from functools import cache
from typing import Any, NamedTuple

from kfp import dsl

from gatehouse.store.image import image_of
from gatehouse.store.parameters import defaults_of, inputs_of, outputs_of
from gatehouse.store.stage import Stage, declared_stages

_SOURCE = '''
def {name}({parameters}) -> {outputs}:
    """{said}

    Args:
{described}
    """
    from gatehouse.store.parameters import request_of, runner, values_of
    from gatehouse.store.store import ArtifactStore
    from {module} import {name} as _stage

    _run = runner(ArtifactStore.open(store), {memo})
    _result = _run(_stage, request_of(_stage, {arguments}))
    {returned}
'''
_STORE = "    store: Address of the artifact store."
_MEMO = {
    "code": "    code: Digest of the stage's code, by stage.",
    "rerun": "    rerun: Stages that run whatever the memo holds, as train,evaluate; empty for none.",
}


@cache
def component_of(name: str) -> Any:
    """The KFP component of a stage, by the stage's name.

    A room writes `component.py` where KFP shows more than values (metrics, a page), or where a task runs several
    stages. For every other stage, request and result say all that KFP needs to know.
    """
    stage = declared_stages()[name]
    interface = f"{stage.function.__module__.rpartition('.')[0]}.component"
    if importlib.util.find_spec(interface) is not None:
        return _shortened(getattr(importlib.import_module(interface), name))
    source = _source(stage)
    file = f"{name}-{len(source)}.py"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    names: dict[str, Any] = {"NamedTuple": NamedTuple}
    exec(compile(source, file, "exec"), names)  # noqa: S102 - our own source, with names of our own stages
    decorate = dsl.component(base_image=image_of(name), packages_to_install=[], install_kfp_package=False)
    return _shortened(decorate(names[name]))


def _shortened(component: Any) -> Any:
    """A component whose program has no docstring: KFP has read it, and Argo keeps each program four times."""
    *command, program = component.component_spec.implementation.container.command
    function = ast.parse(program).body[-1]
    assert isinstance(function, ast.FunctionDef)
    doc, lines = function.body[0], program.splitlines(keepends=True)
    if ast.get_docstring(function) is not None:
        assert doc.end_lineno is not None
        del lines[doc.lineno - 1 : doc.end_lineno]
    component.component_spec.implementation.container.command = [*command, "".join(lines)]
    return component


def _source(stage: Stage[Any, Any]) -> str:
    """The function of a component whose parameters are the fields of the request, and its outputs those of the result.

    What the function and its parameters mean is taken from docstrings: the stage's first line, and `Attributes:` of
    the request.
    """
    inputs, outputs, defaults = inputs_of(stage), outputs_of(stage), defaults_of(stage)
    memo = _MEMO if stage.declared.effects.memo else {}
    parameters = ["store: str", *(f"{name}: {kind}" for name, kind in inputs.items() if name not in defaults)]
    parameters += [f"{name}: {inputs[name]} = {value!r}" for name, value in defaults.items()]
    parameters += ["code: dict = {}", 'rerun: str = ""'] if memo else []
    listed = ", ".join(f'("{name}", {kind})' for name, kind in outputs.items())
    attributes = inspect.cleandoc(stage.request.__doc__ or "").partition("Attributes:\n")[2].rstrip()
    described = "\n".join(filter(None, [_STORE, attributes, *memo.values()]))
    return _SOURCE.format(
        name=stage.name,
        module=stage.function.__module__,
        parameters=", ".join(parameters),
        outputs=f'NamedTuple("Outputs", [{listed}])' if outputs else "None",
        said=inspect.cleandoc(stage.__doc__ or stage.declared.title).splitlines()[0],
        described="\n".join(f"    {line}" for line in described.splitlines()),
        memo="code, rerun" if memo else '{}, ""',
        arguments=", ".join(f"{name}={name}" for name in inputs),
        returned="return values_of(_result)" if outputs else "",
    )
