"""Writes docs/pipelines/<pipeline>.md from the compiled specs, with a drawing of each, and an index.

The specs are those of the example project for the platform that it has a profile of.
"""

import tempfile
from pathlib import Path
from typing import Any

from _drawing import drawing, stages_of
from _pages import EXAMPLE, main, table

from gatehouse import components
from gatehouse.kfp.compilation.compiling import compile_pipeline
from gatehouse.kfp.compilation.specification import Compiled, Task, read_spec
from gatehouse.pipelines.catalog import build, names
from gatehouse.project.platforms import load_platform
from gatehouse.project.project import load_project

_FOLDER = "docs/pipelines"
_GENERATED = "<!-- Written by docs/make_pipelines.py from the compiled specs; do not edit. -->\n"
_ABOUT = """As they are compiled for the example project. `gatehouse run PROJECT --pipeline NAME` runs one on this
machine; [a cluster](../cluster.md) runs what [`gatehouse compile`](../specs.md) writes.
"""
_TYPES = {"STRING": "text", "NUMBER_INTEGER": "integer", "NUMBER_DOUBLE": "number", "BOOLEAN": "yes or no"}


def pages() -> dict[str, str]:
    """The page and the drawing of every pipeline, and the index, by path."""
    project, platform = load_project(EXAMPLE), load_platform(EXAMPLE / "platforms" / "cluster.yaml")
    written, rows = {}, []
    with tempfile.TemporaryDirectory() as directory:
        for name in names():
            spec = read_spec(compile_pipeline(name, project, Path(directory), platform))
            pipeline = build(name, project)
            written[f"{_FOLDER}/{name}.md"] = _page(name, spec, stages_of(pipeline))
            written[f"docs/images/pipelines/{name}.svg"] = drawing(pipeline, name)
            rows.append([f"[{name}]({name}.md)", _summary(spec), str(len(spec.leaves)), ", ".join(sorted(spec.inputs))])
    index = table(["pipeline", "what it does", "tasks", "parameters"], rows)
    written[f"{_FOLDER}/README.md"] = f"# Pipelines\n\n{_GENERATED}\n{_ABOUT}\n{index}"
    return written


def _summary(spec: Compiled) -> str:
    return str(spec.spec["pipelineInfo"]["description"]).partition("\n")[0]


def _page(name: str, spec: Compiled, stages: dict[str, list[str]]) -> str:
    parameters = [
        [f"`{key}`", _type(body), f"`{body['defaultValue']}`" if body.get("defaultValue") else "", body["description"]]
        for key, body in sorted(spec.inputs.items())
    ]
    outputs = [
        [task.name, f"`{key}`", str(output.type).removeprefix("system.").partition("@")[0], output.description]
        for task in spec.leaves
        for key, output in (getattr(components, task.stage).component_spec.outputs or {}).items()
        if "." in str(output.type)
    ]
    return "\n".join(
        [
            f"# The {name} pipeline\n\n{_GENERATED}\n{_summary(spec)}\n",
            f"![Tasks of the {name} pipeline, and what flows between them](../images/pipelines/{name}.svg)\n",
            "## Parameters of a run\n\nEach has a default; in the KFP UI they are a form.\n",
            table(["parameter", "type", "default", "what it is"], parameters),
            "## What is shown in the KFP UI\n" if outputs else "",
            table(["task", "output", "kind", "what it is"], outputs) if outputs else "",
            "## Tasks\n\nResources of each pod on the platform of the example.\n",
            table(
                ["task", "stages", "CPU", "memory", "ends after", "retries", "cache"],
                [_row(task_of_spec, stages[task_of_spec.name]) for task_of_spec in spec.leaves],
            ),
        ]
    )


def _type(body: dict[str, Any]) -> str:
    choices = [f"`{choice}`" for choice in body.get("literals", [])]
    return ", ".join(choices) or _TYPES.get(body["parameterType"], body["parameterType"].lower())


def _row(task: Task, stages: list[str]) -> list[str]:
    resources, retries = task.container["resources"], task.body.get("retryPolicy", {}).get("maxRetryCount", 0)
    accelerator = resources.get("accelerator", {})
    gpus = f", {accelerator['resourceCount']} {accelerator['resourceType']}" if accelerator else ""
    return [
        task.body["taskInfo"]["name"],
        ", ".join(f"`{stage}`" for stage in stages),
        f"{resources['resourceCpuLimit']}{gpus}",
        resources["resourceMemoryLimit"],
        f"{int(task.pod['activeDeadlineSeconds']) // 60} min",
        str(retries),
        "yes" if task.body.get("cachingOptions", {}).get("enableCache") else "",
    ]


if __name__ == "__main__":
    main(pages, __doc__)
