"""The program of a trial that runs a KFP component of the user's own, in this environment, and prints what it gives."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gatehouse.errors import ConfigurationError
from gatehouse.store.atomic_file import write_json
from gatehouse.store.parameters import as_written

COMPONENT = "component.json"
"""The file where the program starts: the component as KFP compiles it, and the arguments that are not searched."""
_PLACEHOLDER = re.compile(r"\{\{\$(?:\.(inputs|outputs)\.(parameters|artifacts)\['([^']+)'\](?:\.\w+)?)?\}\}")


def main() -> None:
    """Run the component with the parameters of the trial, and print its numbers as lines `name=value`."""
    body = json.loads(Path(COMPONENT).read_text())
    spec, container = parts_of(body["component"])
    chosen = body["arguments"] | json.loads(Path(os.environ["GATEHOUSE_PARAMETERS"]).read_text())
    task = executor_input(spec, chosen, Path(os.environ["GATEHOUSE_OUTPUT"]))
    command = [_PLACEHOLDER.sub(lambda found: _value(found, task), part) for part in container]
    if ended := subprocess.run(command, check=False).returncode:
        sys.exit(ended if ended > 0 else 128 - ended)
    for name, value in results(task).items():
        print(f"{name}={value!r}", flush=True)  # noqa: T201 - this is how a command gives its metrics.


def write_component(
    component: Mapping[str, Any], arguments: Mapping[str, Any], folder: Path
) -> tuple[tuple[str, ...], str]:
    """Write the files of a trial to a folder; returns the command of the trial, and the folder."""
    body = {"component": as_written(component), "arguments": as_written(arguments)}
    parts_of(body["component"])
    folder.mkdir(exist_ok=True)
    write_json(folder / COMPONENT, body)
    return ("python", "-m", "gatehouse.tuning.component_trial"), str(folder)


def parts_of(component: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The interface of a compiled component, and its command. Raises ConfigurationError if it is not one component."""
    executors = component.get("deploymentSpec", {}).get("executors", {})
    specs = [spec for spec in component.get("components", {}).values() if "executorLabel" in spec]
    container = executors[specs[0]["executorLabel"]].get("container") if len(specs) == 1 else None
    if container is None:
        raise ConfigurationError(
            f"trial: expected one compiled component that runs in a container, found {len(specs)}. Compile it with "
            "kfp.compiler.Compiler().compile(component, path), and give the content of the file."
        )
    return specs[0], [*container.get("command", ()), *container.get("args", ())]


def executor_input(spec: Mapping[str, Any], chosen: Mapping[str, Any], output: Path) -> dict[str, Any]:
    """What KFP tells the container: parameters, `chosen` or their defaults; input artifacts; places of the outputs."""
    inputs, outputs = spec.get("inputDefinitions", {}), spec.get("outputDefinitions", {})
    values = {name: chosen.get(name, of.get("defaultValue")) for name, of in inputs.get("parameters", {}).items()}
    missing = [
        name for name, of in inputs.get("parameters", {}).items() if values[name] is None and not of.get("isOptional")
    ]
    places = {name: os.environ.get(f"GATEHOUSE_INPUT_{name.upper()}") for name in inputs.get("artifacts", {})}
    missing += [name for name, of in inputs.get("artifacts", {}).items() if not (places[name] or of.get("isOptional"))]
    if missing or (unknown := sorted(chosen.keys() - values.keys())):
        raise ConfigurationError(
            f"trial: the component needs {', '.join(missing)}; search them or give them as arguments."
            if missing
            else f"trial: the component has no parameter {', '.join(unknown)}, expected {', '.join(values)}."
        )

    def artifacts(definitions: Mapping[str, Any], where: Mapping[str, str | None]) -> dict[str, Any]:
        return {
            name: {"artifacts": [{"name": name, "type": of["artifactType"], "uri": where[name], "metadata": {}}]}
            for name, of in definitions.items()
            if where[name]
        }

    given = {name: value for name, value in values.items() if value is not None}
    left = {name: str(output / name) for name in (*outputs.get("artifacts", {}), *outputs.get("parameters", {}))}
    return {
        "inputs": {"parameterValues": given, "artifacts": artifacts(inputs.get("artifacts", {}), places)},
        "outputs": {
            "parameters": {name: {"outputFile": left[name]} for name in outputs.get("parameters", {})},
            "artifacts": artifacts(outputs.get("artifacts", {}), left),
            "outputFile": str(output / "executor_output.json"),
        },
    }


def results(task: Mapping[str, Any]) -> dict[str, float]:
    """The numbers that the component gave: output parameters, and the metadata of its artifacts, such as Metrics."""
    outputs, file = task["outputs"], Path(task["outputs"]["outputFile"])
    body = json.loads(file.read_text()) if file.exists() else {}
    values: dict[str, Any] = {}
    for listed in body.get("artifacts", {}).values():
        for artifact in listed["artifacts"]:
            values |= artifact.get("metadata", {})
    for name, place in outputs["parameters"].items():
        if (path := Path(place["outputFile"])).exists():
            try:
                values[name] = json.loads(path.read_text())
            except ValueError:
                continue  # A text.
    values |= body.get("parameterValues", {})
    return {name: float(value) for name, value in values.items() if type(value) in (int, float)}


def _value(found: re.Match[str], task: Mapping[str, Any]) -> str:
    """What stands in the command for a placeholder of KFP."""
    side, kind, name = found.groups()
    if side is None:
        return json.dumps(task)
    if kind == "artifacts":
        return str(task[side]["artifacts"][name]["artifacts"][0]["uri"])
    if side == "outputs":
        return str(task["outputs"]["parameters"][name]["outputFile"])
    value = task["inputs"]["parameterValues"].get(name, "")
    return value if isinstance(value, str) else json.dumps(value)


if __name__ == "__main__":
    main()
