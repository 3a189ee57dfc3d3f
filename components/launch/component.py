"""The KFP interface of the stage `launch`."""

from typing import NamedTuple, Optional

from kfp import dsl

from gatehouse.components.interface import component


@component("training", title="Launch a command", cpu="2", memory="8G", minutes=510)
def launch(
    model: dsl.Output[dsl.Model],
    metrics: dsl.Output[dsl.Metrics],
    log: dsl.Output[dsl.Artifact],
    command: list = ["python", "script.py"],
    script: str = "",
    script_file: Optional[dsl.Input[dsl.Artifact]] = None,
    data: Optional[dsl.Input[dsl.Artifact]] = None,
    validation: Optional[dsl.Input[dsl.Artifact]] = None,
    test: Optional[dsl.Input[dsl.Artifact]] = None,
    base_model: Optional[dsl.Input[dsl.Artifact]] = None,
    environment: dict = {},
    processes: int = 1,
    nodes: int = 1,
    kind: str = "local",
    image: str = "",
    resources: dict = {},
    settings: dict = {},
    restarts: int = 3,
    timeout_minutes: float = 480.0,
    name: str = "launch",
    store: str = "",
) -> NamedTuple("Outputs", [("output", str)]):
    """Run any script, alone or by torchrun on several processes and nodes; it goes on from its checkpoints.

    The script needs no protocol. It writes its result to the folder $GATEHOUSE_OUTPUT, and reads its inputs at
    $GATEHOUSE_INPUT_DATA, $GATEHOUSE_INPUT_BASE_MODEL, and so on. What it keeps in $GATEHOUSE_CHECKPOINTS is there
    again when it starts again. It prints metrics as `name=value`. It has succeeded if its exit code is 0 and its output
    is not empty.

    Args:
        command: Program and arguments, which no shell reads; $GATEHOUSE_OUTPUT and the others are replaced in them.
        script: Text of a Python program, which is script.py where the command starts; empty for code in the image.
        script_file: The program as a file, or as a folder in which the command starts.
        data: What the script reads, any artifact.
        validation: What it validates with.
        test: What it tests with.
        base_model: The model with which it starts.
        environment: Environment variables of the script.
        processes: Processes a node; several processes or nodes run under torchrun.
        nodes: Machines; more than one only on a cluster.
        kind: local for this task's pod, pytorchjob or trainjob for a job of an operator.
        image: Image of the job's pods with the script and this version of Gatehouse; empty for that of Gatehouse.
        resources: Of each pod of a job, as {"cpu": "4", "memory": "16Gi", "gpus": 1}; a local one has the task's.
        settings: More settings of the launcher, such as queue, tolerations, secrets.
        restarts: How often it starts again after a process was killed, or of several failed.
        timeout_minutes: The time limit of the script; the task has its own.
        name: Name of the result in the store.
        store: Address of the artifact store; needed on a cluster, where files go through it.

    Returns:
        output: Reference of the result in the store; empty without one.
        model: The folder that the script wrote.
        metrics: The last value of each metric that it printed.
        log: What it printed.
    """
    import json
    import shutil
    from pathlib import Path

    from gatehouse.errors import ConfigurationError
    from gatehouse.launchers.choose import launch_of
    from gatehouse.launchers.launch_stage import launch as run_launch
    from gatehouse.store.parameters import as_written, open_store, request_of, runner

    unfinished = Path(model.path).with_name("unfinished")  # The next attempt of this task finds it.
    own = {"image": image, "nodes": nodes, "resources": as_written(resources)}
    if kind == "local" and (image or nodes > 1 or resources):
        raise ConfigurationError(
            "kind: expected pytorchjob or trainjob with nodes, image or resources, found local. Of a local launch, set "
            "the task's own, as set_container_image and set_memory_limit."
        )
    if kind != "local" and not store:
        raise ConfigurationError(f"store: expected an address with kind {kind}, as the files of pods go through it.")
    if script and script_file:
        raise ConfigurationError("script: expected a text or a file, found both.")
    body = {"kind": kind, **as_written(settings), **({} if kind == "local" else own)}
    spec = {"command": command, "environment": environment, "processes": processes * nodes, "image": image}
    spec |= {"restarts": restarts, "timeout_minutes": timeout_minutes}
    inputs = {"code": script_file, "data": data, "validation": validation, "test": test, "base_model": base_model}
    files = {key: artifact.path for key, artifact in inputs.items() if artifact is not None}
    if script:
        files["code"] = log.path + ".py"
        Path(files["code"]).write_text(script, encoding="utf-8")
    opened = open_store(store or str(unfinished))
    spec["launch"] = launch_of(json.dumps(body), "settings").model_dump(mode="json")
    result = runner(opened)(run_launch, request_of(run_launch, name=name, spec=spec, files=files, log=log.path))
    for entry in opened.manifest(result.output).files:
        (Path(model.path) / entry.path).parent.mkdir(parents=True, exist_ok=True)
        opened.copy(result.output, entry.path, Path(model.path) / entry.path)
    for key, value in result.metrics.items():
        metrics.log_metric(key, value)
    if not store:
        shutil.rmtree(unfinished, ignore_errors=True)
        return ("",)
    model.metadata["reference"] = opened.address_of(result.output)
    return (result.output,)
