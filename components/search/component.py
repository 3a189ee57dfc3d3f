"""The KFP interface of the stage `search`."""

from typing import NamedTuple, Optional

from kfp import dsl

from gatehouse.components.interface import component


@component("training", title="Search parameters", cpu="2", memory="8G", minutes=510)
def search(
    report: dsl.Output[dsl.HTML],
    table: dsl.Output[dsl.Markdown],
    trials: dsl.Output[dsl.Dataset],
    experiment: dict = {},
    experiment_file: Optional[dsl.Input[dsl.Artifact]] = None,
    command: list = ["python", "script.py"],
    script: str = "",
    script_file: Optional[dsl.Input[dsl.Artifact]] = None,
    trial: dict = {},
    arguments: dict = {},
    data: Optional[dsl.Input[dsl.Artifact]] = None,
    validation: Optional[dsl.Input[dsl.Artifact]] = None,
    base_model: Optional[dsl.Input[dsl.Artifact]] = None,
    environment: dict = {},
    processes: int = 1,
    nodes: int = 1,
    kind: str = "local",
    image: str = "",
    resources: dict = {},
    settings: dict = {},
    restarts: int = 3,
    timeout_minutes: float = 120.0,
    seed: int = 0,
    name: str = "search",
    store: str = "",
) -> NamedTuple("Outputs", [("best", dict), ("value", float), ("summary", str), ("experiment_reference", str)]):
    """Search the parameters of any script, or of a component, with the controller of `tune`.

    A trial is a run of the command, as `launch` runs it. Its parameters replace {name} in the command, and are in the
    JSON file $GATEHOUSE_PARAMETERS. The last line `metric=value` with the objective is its value, and each such line is
    a step for early stopping. A search that was killed goes on, and one that was finished is not repeated.

    Args:
        experiment: What is searched and how, as an ExperimentSpec or a Katib Experiment; parameters have any name.
        experiment_file: The same as YAML or JSON.
        command: Program and arguments of a trial, with {name} for a parameter.
        script: Text of a Python program, which is script.py where the command starts; empty for code in the image.
        script_file: The program as a file, or as a folder in which the command starts.
        trial: A component as KFP compiles it, in place of a command; its numbers out are metrics. It runs in the image.
        arguments: Parameters of the component that are not searched.
        data: What a trial reads at $GATEHOUSE_INPUT_DATA, or the component's input of this name.
        validation: What a trial validates with.
        base_model: The model with which a trial starts.
        environment: Environment variables of a trial.
        processes: Processes a node; several processes or nodes run under torchrun.
        nodes: Machines of a trial; more than one only on a cluster.
        kind: local for this task's pod, pytorchjob or trainjob for a job of an operator for each trial.
        image: Image of the job's pods with the script and this version of Gatehouse; empty for that of Gatehouse.
        resources: Of each pod of a job, as {"cpu": "4", "memory": "16Gi", "gpus": 1}; a local one has the task's.
        settings: More settings of the launcher, such as queue, tolerations, secrets.
        restarts: How often a trial starts again after a process was killed, or of several failed.
        timeout_minutes: The time limit of a trial.
        seed: Of the suggestions.
        name: Name of the experiment in the store.
        store: Address of the artifact store, in which a search goes on after its task was lost.

    Returns:
        best: The parameters of the best trial.
        value: Its objective.
        summary: The result in one line.
        experiment_reference: Reference of the experiment in the store; empty without one.
        report: The report of the experiment.
        table: The best trials.
        trials: All trials as Parquet: number, state, reason, the parameters and the metrics.
    """
    import json
    import shutil
    from pathlib import Path

    from gatehouse.launchers.commands import command_files, command_spec, digest_of_files
    from gatehouse.reports.rendering import rendered
    from gatehouse.store.parameters import given, open_store, runner
    from gatehouse.tracking.training import track_experiment
    from gatehouse.tuning.component_trial import write_component
    from gatehouse.tuning.reports.page import write_markdown, write_trials
    from gatehouse.tuning.search_stage import search as run_search
    from gatehouse.tuning.search_stage import search_spec

    spec = search_spec(given("experiment", experiment, experiment_file))
    where = {"kind": kind, "image": image, "nodes": nodes, "resources": resources, "settings": settings, "store": store}
    limits = {"restarts": restarts, "timeout_minutes": timeout_minutes}
    files = command_files(
        script, report.path, code=script_file, data=data, validation=validation, base_model=base_model
    )
    if trial:
        command, files["code"] = write_component(trial, arguments, Path(report.path).with_name("component"))
    run = command_spec(command=command, environment=environment, processes=processes, **where, **limits)
    unfinished = Path(report.path).with_name("unfinished")  # The next attempt of this task finds it.
    opened = open_store(store or str(unfinished))
    inputs = {key: digest_of_files(Path(path)) for key, path in files.items()}
    request = run_search.request(name=name, spec=spec, trial=run, inputs=inputs, files=files, seed=seed)
    result = runner(opened)(run_search, request)
    track_experiment(opened, result.experiment)
    shutil.copyfile(rendered(opened, result.experiment), report.path)
    write_markdown(opened, result.experiment, table.path)
    write_trials(opened, result.experiment, trials.path)
    best, reference = json.loads(result.best), result.experiment
    if store:
        report.metadata["reference"] = trials.metadata["reference"] = opened.address_of(reference)
    else:
        shutil.rmtree(unfinished, ignore_errors=True)
        reference = ""
    return (best, result.value, result.summary, reference)
