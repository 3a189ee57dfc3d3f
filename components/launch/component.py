"""The KFP interface of the stage `launch`."""

from typing import NamedTuple

from kfp import dsl

from gatehouse.components.interface import component


@component("training", title="Launch a command", cpu="2", memory="8G", minutes=510, files={"component": ("data",)})
def launch(
    model: dsl.Output[dsl.Model],
    metrics: dsl.Output[dsl.Metrics],
    log: dsl.Output[dsl.Artifact],
    command: list = ["python", "script.py"],
    script: str = "",
    script_file: dsl.Input[dsl.Artifact] = None,
    data: dsl.Input[dsl.Artifact] = None,
    validation: dsl.Input[dsl.Artifact] = None,
    base_model: dsl.Input[dsl.Artifact] = None,
    environment: dict = {},
    processes: int = 1,
    nodes: int = 1,
    kind: str = "local",
    image: str = "",
    resources: dict = {},
    settings: dict = {},
    timeout_minutes: float = 480.0,
    name: str = "launch",
    store: str = "",
) -> NamedTuple("Outputs", [("warnings", list)]):
    """Run any script, alone or by torchrun on several processes and nodes; it goes on from its checkpoints.

    The script needs no protocol. It writes its result to the folder $GATEHOUSE_OUTPUT, and reads its inputs at
    $GATEHOUSE_INPUT_DATA, $GATEHOUSE_INPUT_BASE_MODEL, and so on. Files in $GATEHOUSE_CHECKPOINTS are there again
    when this task starts it again; in another pod only with a store, and of several nodes only that of rank 0.
    Its metrics are what it prints as `name=value`, and what it logs with `mlflow.start_run()` where MLFLOW_TRACKING_URI
    of the task names a server. It has succeeded if its exit code is 0 and its output, that of rank 0, is not empty.

    Args:
        command: Program and arguments, which no shell reads; $GATEHOUSE_OUTPUT and the others are replaced in them.
        script: Text of a Python program, which is script.py where the command starts; empty for code in the image.
        script_file: The program as a file, or as a folder in which the command starts.
        data: What the script reads, any artifact.
        validation: What it validates with.
        base_model: The model with which it starts.
        environment: Environment variables of the script, no secrets; it also has those of the task, or of its pods.
        processes: Processes a node; several processes or nodes run under torchrun.
        nodes: Machines; more than one only on a cluster.
        kind: local for this task's pod, pytorchjob or trainjob for a job of an operator.
        image: Image of the job's pods with the script and this version of Gatehouse; empty for that of Gatehouse.
        resources: Of each pod of a job, as {"cpu": "4", "memory": "16Gi", "gpus": 1}; a local one has the task's.
        settings: More settings of the launcher, as queue, tolerations; restarts after a process was killed or failed.
        timeout_minutes: The time limit of the script; the task has its own.
        name: Name of the result in the store.
        store: Address of the artifact store; a job needs it for its files, and a pod, as its checkpoints end with it.

    Returns:
        warnings: Files that register will refuse without a reason, as they may run code when they are loaded.
        model: The folder that the script wrote.
        metrics: The last value of each metric that it printed or logged, unless it is NaN or infinite.
        log: What it printed.
    """
    parameters = dict(locals())
    import shutil
    from pathlib import Path

    from gatehouse.data.component_task import ComponentTask, local_files
    from gatehouse.launchers.launch_stage import command_of
    from gatehouse.launchers.launch_stage import launch as run_launch
    from gatehouse.registry.external import warnings_of_files
    from gatehouse.store.run import task_id

    folder = Path(model.path)
    unfinished = folder.with_name("unfinished")  # The next attempt of this task finds it.
    artifacts = {"code": script_file, "data": data, "validation": validation, "base_model": base_model}
    inputs = {key: local_files(artifact, folder.with_name(f"input-{key}")) for key, artifact in artifacts.items()}
    run = ComponentTask(store, unfinished=unfinished)
    command_and_inputs = command_of(parameters, inputs, folder.with_name("script.py"))
    result = run_launch(run_launch.request(**command_and_inputs, task=task_id(), log=log.path), run.store)
    run.give(model, result.output, tables=True)
    for key, value in result.metrics.items():
        metrics.log_metric(key, value)
    if not run.kept:
        shutil.rmtree(unfinished, ignore_errors=True)
    return (warnings_of_files(folder),)
