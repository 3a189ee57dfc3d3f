"""Writes components/<stage>/README.md from the compiled specs, and the index components/README.md.

What a component takes and gives, its image and its resources are read from the specs that `compile.py` writes; what it
reads and writes besides artifacts, and why it is cached or not, from the declaration of its stage.
"""

import ast
import inspect
import os
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
from gatehouse.store.stage import declared_stages, in_task, leads

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
    found: dict[str, Component] = {}
    with tempfile.TemporaryDirectory() as directory:
        for path in compile_project(load_project(EXAMPLE), Path(directory)):
            spec = read_spec(path)
            for task in spec.leaves:
                one = found.setdefault(task.stage, _component(spec, task))
                one.pipelines.append(path.stem.partition("-")[2])
        for name in {name for names in _rooms().values() for name in names if not _led(name)} - {*found}:
            spec = read_spec(_alone(name, Path(directory) / f"{name}.yaml"))
            found[name] = _component(spec, spec.leaves[0])
    return found


def _alone(name: str, path: Path) -> Path:
    """A component that the example does not use, compiled as the only task of a pipeline."""

    @dsl.pipeline(name=name.replace("_", "-"))
    def pipeline() -> None:
        inputs = component_of(name).component_spec.inputs or {}
        given = {key: _EMPTY[str(value.type)] for key, value in inputs.items() if key not in ("store", "code")}
        Tasks("alone", load_project(EXAMPLE), THIS_MACHINE).add(declared_stages()[name], **given)

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
    wanted = {"outputParameterKey": output, "producerTask": task.name}
    names: list[str] = []
    for other in spec.leaves:
        for key, value in other.body.get("inputs", {}).get("parameters", {}).items():
            if value.get("taskOutputParameter") == wanted:
                described = described or other.component["inputDefinitions"]["parameters"][key].get("description", "")
                names.append(f"`{other.name.replace('-', '_')}`")
    return [described, ", ".join(names)]


def pages() -> dict[str, str]:
    """The README of every stage and the index, by path."""
    compiled = components()
    written: dict[str, str] = {}
    for folder, names in _rooms().items():
        results = _results(folder)
        sections = [
            _led_section(name, folder) if _led(name) else _section(compiled[name], results.get(name, ""))
            for name in names
        ]
        head = f"# {_room(folder)}\n\n{_GENERATED}\n{_about(folder)}"
        written[f"components/{_room(folder)}/README.md"] = "\n".join([head, *sections])
    written["components/README.md"] = _index(compiled)
    return written


def _rooms() -> dict[Path, list[str]]:
    """The stages that tasks run, by the folder of their `stage.py`."""
    rooms: dict[Path, list[str]] = {}
    for name, stage in declared_stages().items():
        if not stage.declared.inner:
            rooms.setdefault(_folder(name), []).append(name)
    return dict(sorted(rooms.items()))


def _folder(stage: str) -> Path:
    path = declared_stages()[stage].function.__module__.removeprefix("gatehouse.").replace(".", "/")
    return (ROOT / path).parent


def _led(stage: str) -> bool:
    """Whether a stage has no component of its own: the task of another one runs it."""
    return stage in leads() and not (_folder(stage) / "component.py").exists()


def _room(folder: Path) -> str:
    return folder.relative_to(_COMPONENTS).as_posix()


def _results(folder: Path) -> dict[str, str]:
    """What each stage of a folder returns: the docstring of its result class, by the stage's name."""
    nodes = [node for path in sorted(folder.glob("*.py")) for node in ast.parse(path.read_text()).body]
    docs = {node.name: ast.get_docstring(node) or "" for node in nodes if isinstance(node, ast.ClassDef)}
    return {
        node.name: docs.get(ast.unparse(node.returns), "")
        for node in nodes
        if isinstance(node, ast.FunctionDef) and node.returns is not None and node.decorator_list
    }


def _first_line(path: Path) -> str:
    return (ast.get_docstring(ast.parse(path.read_text())) or "").splitlines()[0]


def _about(folder: Path) -> str:
    files = [
        [f"[{path.name}]({path.name})", _first_line(path)]
        for path in sorted(folder.glob("*.py"))
        if path.name != "__init__.py"
    ]
    return f"{_first_line(folder / '__init__.py')}\n\n{table(['file', 'what it is'], files)}"


def _section(component: Component, result: str) -> str:
    task = component.task
    stage, resources = declared_stages()[task.stage], task.container["resources"]
    run = in_task(stage)
    effects, cached = stage.declared.effects, all(one.cacheable for one in run)
    kept = [f"`{one.name}`" if len(run) > 1 else "its result" for one in run if one.declared.effects.memo]
    facts = [
        ["runs", ", ".join(f"`{one.name}`" for one in run)],
        ["reads", _joined(one.declared.effects.reads for one in run) or "nothing but its parameters"],
        ["writes", _joined(one.declared.effects.writes for one in run) or "nothing but its artifacts"],
        ["KFP's cache", "on" if cached else "off"],
        ["the stage memo", f"holds {', '.join(kept)}" if kept else "is not used: it runs every time"],
        ["retries", str(task.body.get("retryPolicy", {}).get("maxRetryCount", 0))],
        ["why", effects.why],
        ["resources", f"CPU {resources['resourceCpuLimit']}, memory {resources['resourceMemoryLimit']}"],
        ["ends after", f"{int(task.pod['activeDeadlineSeconds']) // 60} minutes"],
        ["image", f"`{task.container['image'].partition(':')[0]}`"],
        ["used by", ", ".join(component.pipelines) or "pipelines that ask for it; not the example's"],
    ]
    parts = [f"## `{task.stage}`\n", component.doc.splitlines()[0] + "\n"]
    parts.append(table(["input", "type", "what it is"], component.inputs))
    if component.outputs:
        parts.append(f"Gives: {result}\n" if result else "")
        parts.append(table(["output", "type", "what it is", "taken by"], component.outputs))
    parts.append(table(["", ""], facts))
    return "\n".join(parts)


def _led_section(name: str, folder: Path) -> str:
    """What a stage without a component of its own does; its inputs and outputs are those of its request and result."""
    stage, lead = declared_stages()[name], leads()[name]
    effects, page = stage.declared.effects, Path(os.path.relpath(_folder(lead) / "README.md", folder)).as_posix()
    facts = [
        ["runs in the task", f"[`{lead}`]({page}#{lead})"],
        ["takes", ", ".join(f"`{field}`" for field in stage.request.model_fields)],
        ["gives", ", ".join(f"`{field}`" for field in stage.result.model_fields) or "nothing"],
        ["reads", effects.reads or "nothing but its parameters"],
        ["writes", effects.writes or "nothing but its artifacts"],
        ["the stage memo", "holds its result" if effects.memo else "is not used: it runs every time"],
        ["why", effects.why],
    ]
    said = inspect.cleandoc(stage.__doc__ or stage.declared.title).splitlines()[0]
    return "\n".join([f"## `{name}`\n", f"{said}\n", table(["", ""], facts)])


def _joined(texts: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(filter(None, texts)))


def _index(compiled: dict[str, Component]) -> str:
    stages, libraries = [], []
    rooms = _rooms()
    for folder, names in rooms.items():
        room = _room(folder)
        listed = ", ".join(f"`{name}`" + (f" in `{leads()[name]}`" if _led(name) else "") for name in names)
        stages.append([f"[{room}]({room}/README.md)", _first_line(folder / "__init__.py"), listed])
    for folder in sorted(path.parent for path in _COMPONENTS.glob("*/__init__.py")):
        if not any(room.is_relative_to(folder) for room in rooms):
            libraries.append([f"[{folder.name}]({folder.name})", _first_line(folder / "__init__.py")])
    declared = [stage.declared for _, stage in sorted(declared_stages().items())]
    effects = [
        [f"`{one.name}`", one.effects.reads, one.effects.writes, "yes" if one.effects.memo else "", one.effects.why]
        for one in declared
    ]
    return f"""# Components

{_GENERATED}
One folder a stage. A folder holds `stage.py` (the stage itself, a function of a request and the store), what it needs,
and `component.py` where KFP sees more of it than the fields of request and result.

{table(["folder", "what it does", "stages"], stages)}
Libraries are shared; a library never imports a stage.

{table(["library", "what it is"], libraries)}
## What stages read and write besides artifacts

As each stage declares it in its `stage.py`. What has no memo runs every time; the rest is a pure function of its
parameters.

{table(["stage", "reads", "writes", "memo", "why"], effects)}"""


if __name__ == "__main__":
    main(pages, __doc__)
