"""The KFP interface of the stage `search`."""

from typing import NamedTuple

from kfp import dsl

from gatehouse.components.interface import LONGEST_MINUTES, component


@component(
    "training",
    title="Search parameters",
    cpu="2",
    memory="8G",
    minutes=LONGEST_MINUTES,
    files={"component": ("data",)},
    configurations={"spec": "search"},
)
def search(
    report: dsl.Output[dsl.HTML],
    table: dsl.Output[dsl.Markdown],
    trials: dsl.Output[dsl.Dataset],
    experiment: dsl.Output[dsl.Artifact],
    spec: dict = {},
    spec_file: dsl.Input[dsl.Artifact] = None,
    command: list = ["python", "script.py"],
    script: str = "",
    script_file: dsl.Input[dsl.Artifact] = None,
    trial: dict = {},
    arguments: dict = {},
    data: dsl.Input[dsl.Artifact] = None,
    environment: dict = {},
    settings: dict = {},
    trial_timeout_minutes: float = 120.0,
    seed: int = 0,
    name: str = "search",
    store: str = "",
) -> NamedTuple("Outputs", [("best", dict), ("value", float), ("summary", str), ("warnings", list)]):
    """Search the parameters of any script, or of a component, as `train` searches those of a model.

    A trial is a run of the command, as `launch` runs it. Its parameters replace {name} in the command, and are in the
    JSON file $GATEHOUSE_PARAMETERS. The last line `metric=value` with the objective is its value, and each such line is
    a step for early stopping. A search that was killed goes on, and one that was finished is not repeated; another task
    repeats it if the code is in the image.

    Args:
        spec: What is searched and how: an ExperimentSpec, an OptimizationJob or a Katib Experiment; parameters have any
            name.
        spec_file: The same as YAML or JSON.
        command: Program and arguments of a trial, with {name} for a parameter.
        script: Text of a Python program, which is script.py where the command starts; empty for code in the image.
        script_file: The program as a file, or as a folder in which the command starts.
        trial: A compiled Python component in place of a command, without packages_to_install, as it runs in this
            task's image, not in its own; the numbers that it gives are metrics.
        arguments: Parameters of the component that are not searched.
        data: What a trial reads at $GATEHOUSE_INPUT_DATA, or the component's input of this name.
        environment: Environment variables of a trial, no secrets.
        settings: Where a trial runs: kind, image, nodes, processes, resources and the settings of launch.
        trial_timeout_minutes: The time limit of one trial; `budget` of the experiment has one of all.
        seed: The same seed suggests the same parameters.
        name: Name of the experiment in the store.
        store: Address of the artifact store, in which a search goes on after its task was lost.

    Returns:
        best: The parameters of the best trial.
        value: The objective of the best trial.
        summary: The result in one line.
        warnings: What of an OptimizationJob or a Katib Experiment is left out, and that all trials gave one value.
        report: The report of the experiment.
        table: The best trials.
        experiment: The search in the store; nothing without one.
        trials: All trials as Parquet: number, state, reason, parameters, metrics.
    """
    parameters = dict(locals())
    import json
    import shutil
    from pathlib import Path

    from gatehouse.data.component_task import ComponentTask, local_files
    from gatehouse.errors import ConfigurationError
    from gatehouse.launchers.launch_stage import command_of
    from gatehouse.store.parameters import configuration_of
    from gatehouse.store.run import task_id
    from gatehouse.tuning.command_trials import unread
    from gatehouse.tuning.component_trial import COMMAND, write_component
    from gatehouse.tuning.katib import search_of
    from gatehouse.tuning.report import write_markdown, write_trials
    from gatehouse.tuning.stage import search as run_search

    body = configuration_of("spec", spec, spec_file)
    sought, parameters["command"], warnings = search_of(body, COMMAND if trial else command)
    parameters["timeout_minutes"] = trial_timeout_minutes
    here = Path(report.path).parent
    inputs = {"code": local_files(script_file, here / "input-code"), "data": local_files(data, here / "input-data")}
    if trial:
        if script or script_file:
            raise ConfigurationError("trial: expected a component, or a script and its command, found both.")
        searched = [parameter.name for parameter in sought.parameters]
        inputs["code"] = write_component(trial, arguments, searched, data is not None, here / "component")
    run = ComponentTask(store, unfinished=here / "unfinished")  # The next attempt of this task finds it.
    tried = command_of(parameters, inputs, here / "script.py")
    task = "" if "code" in tried["inputs"] else task_id()  # Other code may run in another task.
    result = run_search(run_search.request(**tried, task=task, spec=sought, seed=seed), run.store)
    run.show(report, result.experiment)
    write_markdown(run.store, result.experiment, table.path)
    write_trials(run.store, result.experiment, trials.path)
    warnings += unread(run.store, result.experiment, sought.objective[0].metric)
    run.give(experiment, result.experiment)
    run.label(result.experiment, table, trials)
    if not run.kept:
        shutil.rmtree(here / "unfinished", ignore_errors=True)
    return (json.loads(result.best), result.value, result.summary, warnings)
