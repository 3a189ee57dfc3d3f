"""The program of a trial that runs a KFP component of the user's own, in this environment, and prints its numbers."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from gatehouse.errors import ConfigurationError
from gatehouse.launchers.launch_stage import plain, require_no_secrets
from gatehouse.store.atomic_file import write_json

COMMAND = ["python", "-m", "gatehouse.tuning.component_trial"]
_FILE, _EXECUTOR_INPUT = "component.json", "{{$}}"
_OF_KFP = ("kfp==", "typing-extensions", "--no-deps")  # what KFP itself installs before a component runs


def write_component(
    component: Mapping[str, Any], arguments: Mapping[str, Any], searched: Collection[str], has_data: bool, folder: Path
) -> Path:
    """Write a compiled component, and the arguments that are not searched; returns the folder, a trial's program.

    Raises ConfigurationError if the component has no such input, or one that nobody gives; of artifacts, a trial has
    `data` alone, if `has_data`.
    """
    require_no_secrets("arguments", arguments)
    body = plain({"component": component, "arguments": arguments})
    definitions = parts_of(body["component"])[0].get("inputDefinitions", {})
    artifacts = definitions.get("artifacts", {})
    inputs = definitions.get("parameters", {}) | artifacts
    values = {*arguments, *searched, *(["data"] if has_data else ())}
    required = {name for name, field in inputs.items() if not field.get("isOptional")}
    foreign = artifacts.keys() - {"data"}
    problems = {"no value for": required - values - foreign, "no input": values - inputs.keys()}
    problems["no trial has the artifact"] = foreign
    if wrong := [f"{why} {', '.join(sorted(names))}" for why, names in problems.items() if names]:
        raise ConfigurationError(
            f"trial: expected parameters, arguments and the artifact data for its inputs {', '.join(inputs) or 'none'},"
            f" found {', '.join(sorted(values)) or 'none'}: {'; '.join(wrong)}."
        )
    folder.mkdir(exist_ok=True)
    write_json(folder / _FILE, body)
    return folder


def parts_of(component: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The interface of a compiled component, and its command; raises ConfigurationError for anything else."""
    specs = [spec for spec in component.get("components", {}).values() if "executorLabel" in spec]
    if len(specs) == 1:
        executor = component["deploymentSpec"]["executors"][specs[0]["executorLabel"]].get("container", {})
        command = [*executor.get("command", ()), *executor.get("args", ())]
        if "pip install" in (shell := "".join(command[2:3])):
            if packages := [name for name in re.findall("'([^']+)'", shell) if not name.startswith(_OF_KFP)]:
                raise ConfigurationError(
                    f"trial: expected no packages_to_install, found {', '.join(packages)}, as trials run side by side "
                    "in this task's image. Build them into an image, and give that to the task, by set_container_image."
                )
            command = command[3:]  # kfp is here.
        if _EXECUTOR_INPUT in command:
            return specs[0], command
    raise ConfigurationError(
        f"trial: expected one compiled Python component, found {len(specs)} components. Compile it with "
        "kfp.compiler.Compiler().compile(component, path), and give what the file holds."
    )


def main() -> None:
    """Run the component with the parameters of the trial, and print its numbers as lines `name=value`."""
    body = json.loads(Path(_FILE).read_text())
    chosen = body["arguments"] | json.loads(Path(os.environ["GATEHOUSE_PARAMETERS"]).read_text())
    spec, command = parts_of(body["component"])
    inputs, outputs = spec.get("inputDefinitions", {}), spec.get("outputDefinitions", {})
    output = Path(os.environ["GATEHOUSE_OUTPUT"])

    def artifacts(definitions: Mapping[str, Any], places: Mapping[str, str | None]) -> dict[str, Any]:
        return {
            name: {"artifacts": [{"name": name, "type": of["artifactType"], "uri": places[name], "metadata": {}}]}
            for name, of in definitions.get("artifacts", {}).items()
            if places[name]
        }

    defaults = {name: of.get("defaultValue") for name, of in inputs.get("parameters", {}).items()}
    values = {name: value for name, value in (defaults | chosen).items() if value is not None}
    places = {name: os.environ.get(f"GATEHOUSE_INPUT_{name.upper()}") for name in inputs.get("artifacts", {})}
    left = {name: str(output / name) for kind in ("artifacts", "parameters") for name in outputs.get(kind, {})}
    file = output / "executor_output.json"
    task = {
        "inputs": {"parameterValues": values, "artifacts": artifacts(inputs, places)},
        "outputs": {
            "parameters": {name: {"outputFile": left[name]} for name in outputs.get("parameters", {})},
            "artifacts": artifacts(outputs, left),
            "outputFile": str(file),
        },
    }
    filled = [json.dumps(task) if part == _EXECUTOR_INPUT else part for part in command]
    if code := subprocess.run(filled, check=False).returncode:
        sys.exit(code if code > 0 else 128 - code)
    written = json.loads(file.read_text())
    metrics = written.get("parameterValues", {})
    for listed in written.get("artifacts", {}).values():
        metrics |= listed["artifacts"][0].get("metadata", {})
    for name, value in metrics.items():
        sys.stdout.write(f"{name}={value!r}\n" if type(value) in (int, float) else "")


if __name__ == "__main__":
    main()
