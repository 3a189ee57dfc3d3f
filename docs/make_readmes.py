"""Writes components/<name>/README.md from the compiled specs, and the index components/README.md.

What a component takes and gives, its image and its resources are read from the specs that `compile.py` writes; what it
reads and writes besides artifacts, and why it is cached or not, from the declaration of its stage.
"""

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from _pages import EXAMPLE, ROOT, main, table
from kfp import dsl
from kfp.compiler import Compiler

from gatehouse.kfp.compilation.compiling import compile_project
from gatehouse.kfp.compilation.specification import Compiled, Task, read_spec
from gatehouse.pipelines.interfaces import component_of
from gatehouse.pipelines.tasks import Tasks
from gatehouse.project.platforms import THIS_MACHINE
from gatehouse.project.project import load_project
from gatehouse.store.stage import declared_stages, in_task

_COMPONENTS = ROOT / "components"
_TYPES = {
    "STRING": "text",
    "NUMBER_INTEGER": "integer",
    "NUMBER_DOUBLE": "number",
    "BOOLEAN": "yes or no",
    "LIST": "list",
    "STRUCT": "object",
    "TASK_FINAL_STATUS": "how KFP says that it ended",
}
_EMPTY = {"String": "", "List": [], "Dict": {}, "Integer": 0, "Float": 0.0, "Boolean": False}
_GENERATED = "<!-- Written by docs/make_readmes.py from the compiled specs; do not edit. -->\n"


@dataclass
class Component:
    """One component as the compiled specs have it."""

    task: Task
    inputs: list[list[str]]
    outputs: list[list[str]]
    doc: str
    pipelines: list[str] = field(default_factory=list)


def components() -> dict[str, Component]:
    """Every component of every pipeline of the example project, by name."""
    by_name: dict[str, Component] = {}
    with tempfile.TemporaryDirectory() as directory:
        for path in compile_project(load_project(EXAMPLE), Path(directory)):
            spec = read_spec(path)
            for task in spec.leaves:
                component = by_name.setdefault(task.stage, _component(spec, task))
                component.pipelines.append(path.stem.partition("-")[2])
        for name in {path.parent.name for path in _COMPONENTS.glob("*/component.py")} - {*by_name}:
            spec = read_spec(_alone(name, Path(directory) / f"{name}.yaml"))
            by_name[name] = _component(spec, spec.leaves[0])
    return by_name


def _alone(name: str, path: Path) -> Path:
    """A component that the example does not use, compiled as the only task of a pipeline."""

    @dsl.pipeline(name=name.replace("_", "-"))
    def pipeline() -> None:
        inputs = component_of(name).component_spec.inputs or {}
        arguments = {key: _EMPTY[str(value.type)] for key, value in inputs.items() if key not in ("store", "code")}
        Tasks("alone", load_project(EXAMPLE), THIS_MACHINE).add(declared_stages()[name], **arguments)

    Compiler().compile(pipeline, str(path))
    return path


def _component(spec: Compiled, task: Task) -> Component:
    inputs, outputs = (task.component.get(f"{kind}Definitions", {}) for kind in ("input", "output"))
    return Component(
        task=task,
        inputs=[
            [f"`{key}`", _TYPES[value["parameterType"]], value.get("description", "")]
            for key, value in inputs.get("parameters", {}).items()
        ],
        outputs=[
            *(
                [f"`{key}`", _TYPES[value["parameterType"]], *_taken(spec, task, key, value.get("description", ""))]
                for key, value in outputs.get("parameters", {}).items()
            ),
            *(
                [f"`{key}`", value["artifactType"]["schemaTitle"].removeprefix("system."), value["description"], "UI"]
                for key, value in outputs.get("artifacts", {}).items()
            ),
        ],
        doc=component_of(task.stage).description,
    )


def _taken(spec: Compiled, task: Task, output: str, described: str) -> list[str]:
    """What an output of a task is, in its own words or in those of who takes it, and who they are."""
    produced = {"outputParameterKey": output, "producerTask": task.name}
    names: list[str] = []
    for other in spec.leaves:
        for key, value in other.body.get("inputs", {}).get("parameters", {}).items():
            if value.get("taskOutputParameter") == produced:
                described = described or other.component["inputDefinitions"]["parameters"][key].get("description", "")
                names.append(f"`{other.name.replace('-', '_')}`")
    return [described, ", ".join(names)]


def pages() -> dict[str, str]:
    """The README of every component and the index, by path."""
    compiled = components()
    pages = {f"components/{name}/README.md": _readme(component) for name, component in compiled.items()}
    return pages | {"components/README.md": _index(compiled)}


def _readme(component: Component) -> str:
    task = component.task
    stage, resources = declared_stages()[task.stage], task.container["resources"]
    stages = in_task(stage)
    effects = stage.declared.effects
    memoised = [f"`{member.name}`" for member in stages if member.declared.effects.memo]
    sources = [
        f"[`{member.name}`](../../{member.function.__module__.replace('.', '/')}.py)"
        for member in (stages if len(stages) > 1 else [stage])
    ]
    facts = [
        ["stages", ", ".join(sources)],
        ["reads", _joined(member.declared.effects.reads for member in stages) or "nothing but its parameters"],
        ["writes", _joined(member.declared.effects.writes for member in stages) or "nothing but its artifacts"],
        ["KFP's cache", "on" if all(member.cacheable for member in stages) else "off"],
        ["the stage memo", f"holds the results of {', '.join(memoised)}" if memoised else "is not used"],
        ["retries", str(task.body.get("retryPolicy", {}).get("maxRetryCount", 0))],
        ["why", effects.why],
        ["resources", f"CPU {resources['resourceCpuLimit']}, memory {resources['resourceMemoryLimit']}"],
        ["ends after", f"{int(task.pod['activeDeadlineSeconds']) // 60} minutes"],
        ["image", f"`{task.container['image'].partition(':')[0]}`"],
        ["used by", ", ".join(component.pipelines) or "no pipeline of the example"],
    ]
    parts = [f"# {task.stage}\n", _GENERATED, component.doc.splitlines()[0] + "\n"]
    parts.append(table(["input", "type", "description"], component.inputs))
    if component.outputs:
        parts.append(table(["output", "type", "description", "taken by"], component.outputs))
    parts.append(table(["", ""], facts))
    return "\n".join(parts)


def _joined(texts: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(filter(None, texts)))


def _index(compiled: dict[str, Component]) -> str:
    rows = [
        [f"[{name}]({name}/README.md)", component.doc.splitlines()[0], ", ".join(component.pipelines)]
        for name, component in sorted(compiled.items())
    ]
    stages = [
        [f"`{name}`", effects.reads, effects.writes, "yes" if effects.memo else "", effects.why]
        for name, effects in ((name, stage.declared.effects) for name, stage in sorted(declared_stages().items()))
    ]
    return f"""# Components

{_GENERATED}
Each folder holds one component: `component.py` is what KFP sees, a thin function that calls the stages of the library
[gatehouse](../docs/architecture.md).

{table(["component", "what it does", "used by"], rows)}
## What stages read and write besides artifacts

Each stage declares it. A stage without a memo runs every time; every other stage is a pure function of its parameters.

{table(["stage", "reads", "writes", "memo", "why"], stages)}"""


if __name__ == "__main__":
    main(pages, __doc__)
