"""Writes components/<name>/README.md from each component, its stages and its example, and an index of all.

A component without an `example.py` gets an example with what it requires as parameters; both are compiled here.
"""

import inspect
import runpy
import tempfile
from pathlib import Path
from typing import Any

from _pages import ROOT, main, table
from docstring_parser import parse
from kfp.compiler import Compiler
from kfp.dsl import base_component

from gatehouse.components.interface import RETRIES, Component
from gatehouse.kfp.compilation.component_files import (
    address_files,
    artifact_class,
    in_file,
    is_plain,
    public_components,
)
from gatehouse.store.image import image_names, stages_of
from gatehouse.store.stage import Stage, declared_stages

_COMPONENTS = ROOT / "components"
_TYPES = {
    "String": "text",
    "Integer": "integer",
    "Float": "number",
    "Boolean": "yes or no",
    "List": "list",
    "Dict": "object",
    "PipelineTaskFinalStatus": "how KFP says that it ended",
}
_GENERATED = "<!-- Written by docs/make_readmes.py; do not edit. -->\n"


def pages() -> dict[str, str]:
    """The README of every component and the index, by path."""
    public = public_components()
    readmes = {f"components/{name}/README.md": _readme(name, component) for name, component in public.items()}
    return readmes | {"components/README.md": _index(public)}


def _readme(name: str, component: Component) -> str:
    doc, needs, own = parse(component.python_func.__doc__), component.needs, stages_of(name)
    errors: dict[str, list[str]] = {}
    for error in [*doc.raises, *(error for stage in own for error in parse(stage.__doc__ or "").raises)]:
        errors.setdefault(str(error.type_name), []).append(" ".join((error.description or "").split()).rstrip("."))
    by_digest = "where the image is named by digest"
    if is_plain(component):
        by_digest += "; of `component.yaml` always, unless `set_caching_options(False)`"
    caching = by_digest if needs.caching else "no: it reads or writes the world, or may go on"
    costs = [
        ["CPU and memory", f"{needs.cpu}, {needs.memory}"],
        ["time limit of an attempt", f"{needs.minutes} minutes"],
        ["image", f"`gatehouse/{needs.image}`"],
        ["KFP's cache", caching],
        ["retries", f"{RETRIES}, by KFP after a lost pod and by the task after an error"],
        *([["reads", text]] if (text := _joined(stage.declared.effects.reads for stage in own)) else []),
        *([["writes", text]] if (text := _joined(stage.declared.effects.writes for stage in own)) else []),
        *([["stages", ", ".join(map(_link, own))]] if own else []),
    ]
    outputs = component.component_spec.outputs or {}
    given = [[f"`{name}`", _type(output.type), output.description] for name, output in outputs.items()]
    refused = [f"- `{name}`: {'; '.join(texts)}." for name, texts in sorted(errors.items())]
    parts = [
        f"# {name}\n\n{_GENERATED}",
        f"{doc.short_description}\n",
        *([f"{doc.long_description}\n"] if doc.long_description else []),
        "```python",
        _example(name, component).strip(),
        "```\n",
        _files(component),
        "## Inputs\n",
        table(["input", "type", "default", "what it is"], list(_inputs(component))),
        *(["## Outputs\n", table(["output", "type", "what it is"], given)] if outputs else []),
        "## What it costs\n",
        table(["", ""], costs),
        *(["## What it refuses\n", "\n".join([*refused, ""])] if errors else []),
    ]
    return "\n".join(parts)


def _files(component: Component) -> str:
    """How a pipeline without Gatehouse gets the component: its files, and the artifacts that each requires."""
    lines = ["Without Gatehouse: `kfp.components.load_component_from_file`, or `load_component_from_url`, of a file:\n"]
    for name, artifacts in component.needs.files.items():
        own = in_file(component, artifacts).component_spec.inputs or {}
        lacking = ", ".join(f"`{key}`" for key in component.component_spec.inputs or {} if key not in own)
        required = f", which requires {', '.join(f'`{key}`' for key in artifacts)}" if artifacts else ""
        lines.append(f"- `{name}.yaml`{required}{f'; it lacks {lacking}' if lacking else ''}.")
    if imported := address_files(component):
        lines += [
            "",
            "In KFP's UI nobody can give an artifact. Upload a pipeline that takes addresses in their place:\n",
        ]
        lines += [
            f"- `{name}` takes the address of {' and '.join(f'`{key}`' for key in keys)}."
            for name, keys in imported.items()
        ]
        name, artifacts = component.python_func.__name__, next(iter(imported.values()))
        parameters = inspect.signature(component.python_func).parameters
        others = [key for key in component.required_inputs if key not in artifacts]
        signature = [f"{key}: str" for key in artifacts]
        signature += [f"{key}: {_annotation(parameters[key].annotation)}" for key in others]
        given = [*(f"{key}={key}_there.output" for key in artifacts), *(f"{key}={key}" for key in others)]
        lines += [
            "",
            "In Python:\n",
            "```python",
            "@dsl.pipeline",
            _in_lines("def at_address(", signature, ") -> None:"),
        ]
        for key in artifacts:
            kind = artifact_class(component, key).__name__
            place = [f"artifact_uri={key}", f"artifact_class=dsl.{kind}", "reimport=True"]
            lines.append(_in_lines(f"    {key}_there = dsl.importer(", place, ")"))
        lines += [_in_lines(f"    {name}(", given, ")"), "```"]
    return "\n".join([*lines, ""])


def _example(name: str, component: Component) -> str:
    """The text of an example that compiles: the component's own, or one with its required inputs as parameters."""
    path = _COMPONENTS / name / "example.py"
    if path.is_file():
        text = path.read_text().partition('"""\n')[2]
    else:
        parameters = inspect.signature(component.python_func).parameters
        required = [parameters[key] for key in parameters if key in component.required_inputs]
        signature = [f"{parameter.name}: {_annotation(parameter.annotation)}" for parameter in required]
        call = [f"{parameter.name}={parameter.name}" for parameter in required]
        text = (
            f"from kfp import dsl\n\nfrom gatehouse.components import {name}\n\n\n@dsl.pipeline\n"
            f"{_in_lines('def example(', signature, ') -> None:')}\n{_in_lines(f'    {name}(', call, ')')}\n"
        )
    with tempfile.TemporaryDirectory() as folder:
        (source := Path(folder) / "example.py").write_text(text)
        pipeline = runpy.run_path(str(source))["example"]
        assert isinstance(pipeline, base_component.BaseComponent), f"{name}: expected a pipeline named example"
        Compiler().compile(pipeline, f"{folder}/example.yaml")
    return text


def _in_lines(start: str, parts: list[str], end: str) -> str:
    """A signature or a call in one line, or if that is too long with a line for each part, as ruff writes it."""
    indent = " " * (len(start) - len(start.lstrip()))
    line = f"{start}{', '.join(parts)}{end}"
    return (
        line if len(line) <= 120 else f"{start}\n" + "".join(f"{indent}    {part},\n" for part in parts) + indent + end
    )


def _annotation(annotation: Any) -> str:
    if hasattr(annotation, "__origin__"):
        return f"dsl.Input[dsl.{annotation.__origin__.__name__}]"
    return str(annotation.__name__)


def _inputs(component: Component) -> Any:
    for name, parameter in (component.component_spec.inputs or {}).items():
        default = "" if parameter.default is None else f"`{parameter.default!r}`".replace("'", '"')
        default = default or ("none" if parameter.optional else "**required**")
        yield [f"`{name}`", _type(parameter.type), default, parameter.description]


def _type(name: str) -> str:
    return _TYPES.get(str(name), str(name).removeprefix("system.").partition("@")[0])


def _link(stage: Stage[Any, Any]) -> str:
    return f"[`{stage.name}`](../../{stage.function.__module__.replace('.', '/')}.py)"


def _joined(texts: Any) -> str:
    return "; ".join(dict.fromkeys(filter(None, texts)))


def _index(public: dict[str, Component]) -> str:
    rows = [
        [f"[{name}]({name}/README.md)", component.description.splitlines()[0], image_names()[name]]
        for name, component in sorted(public.items())
    ]
    stages = [
        [f"`{name}`", effects.reads, effects.writes, "yes" if effects.memo else "", effects.why]
        for name, effects in ((name, stage.declared.effects) for name, stage in sorted(declared_stages().items()))
    ]
    return f"""# Components

{_GENERATED}
`from gatehouse.components import NAME` is the public path, and needs kfp alone. A folder holds one component:
`component.py` is what KFP sees, a thin function that calls [the library](../docs/architecture.md); `component.yaml` is
the same for users who have not installed Gatehouse. [In your own pipeline](../docs/own-pipeline.md) shows how to use
them.

A component takes an artifact, whoever made it, and gives one. An artifact of a store travels through KFP as a small
file with its address; without a store, components write plain files
([how](../docs/own-pipeline.md#artifacts-and-the-store)).

{table(["component", "what it does", "image"], rows)}
## What stages read and write besides artifacts

Each stage declares it. A stage without a memo runs every time; every other stage is a pure function of its parameters.

{table(["stage", "reads", "writes", "memo", "why"], stages)}"""


if __name__ == "__main__":
    main(pages, __doc__)
