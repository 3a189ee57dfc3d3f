"""`gatehouse tuning`: experiments that search hyperparameters, published and under way."""

import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError
from rich.table import Table
from rich.text import Text

from gatehouse.cli.output import JsonOption, StoreOption, print_json, print_table
from gatehouse.errors import ConfigurationError, GatehouseError
from gatehouse.project.place import PROJECT_FILE, open_store, prices_of, project_folder
from gatehouse.reports.rendering import rendered
from gatehouse.runtime.plural import counted
from gatehouse.store.reference import Reference
from gatehouse.tracking.provenance import PRICES
from gatehouse.tuning.experiments import (
    INTERRUPTED,
    RUNNING,
    Experiment,
    asked_for,
    experiments,
    find_experiment,
    find_running,
    refreshed,
    require_model,
)
from gatehouse.tuning.reports.experiment_view import Body, ExperimentView, ending, text_of, values_of

app = typer.Typer(no_args_is_help=True, help="Experiments: list, show, resume, stop, serve-storage, import-katib.")
ExperimentArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="A model (its newest experiment), a reference, or the key of a study.")
]
_SECONDS = 1.0
_STYLES = {"failed": "red", "killed": "dim", "early_stopped": "dim", "running": "yellow", "interrupted": "yellow"}


@app.command("list")
def list_experiments(
    name: Annotated[str, typer.Argument(help="Only of this model.")] = "",
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """List experiments, published or not: the one that was last changed first. Times are UTC."""
    opened = open_store(store)
    listed = list(experiments(opened, name))
    if name and not listed:
        require_model(opened, name)
    if as_json:
        print_json([_brief(experiment) for experiment in listed])
        return
    if not listed:
        which = f"no experiments of {name}" if name else "no experiments"
        typer.echo(f"{opened.address} has {which}. A training run with `tuning` in its project makes one.")
        return
    table = Table(
        *("model", "state", "trials", "best", "began", "ended", "why", "experiment"), box=None, pad_edge=False
    )
    for experiment in listed:
        shown, running = experiment.shown, experiment.state == RUNNING
        best = f"trial {shown.best['number']}: {values_of(shown, shown.best)}" if shown.best else ""
        done = sum(trial["state"] not in (RUNNING, INTERRUPTED) for trial in shown.trials)
        cells = (experiment.name, experiment.state, f"{done:,}", best, _time(experiment.began))
        ended = "" if running else _time(experiment.changed)
        table.add_row(*map(Text, (*cells, ended, _why(experiment).partition(". ")[0], experiment.short)))
    print_table(table)


@app.command()
def show(
    name: ExperimentArgument,
    follow: Annotated[
        bool, typer.Option("--follow", help="Print a line for each trial as it changes, until the experiment ends.")
    ] = False,
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Show the trials of an experiment, published or under way."""
    opened = open_store(store)
    experiment = find_experiment(opened, name)
    if as_json:
        trials = {"trials": list(experiment.shown.trials), "failed": dict(experiment.failed)}
        print_json(_brief(experiment) | trials)
        return
    seen: dict[int, str] = {}
    while follow and experiment.state == RUNNING:
        for line in events(experiment.shown, seen):
            typer.echo(line)
        time.sleep(_SECONDS)
        experiment = refreshed(opened, experiment)
    shown = experiment.shown
    settings = list(dict.fromkeys(dimension.setting for dimension in shown.dimensions))
    table = Table("trial", "state", box=None, pad_edge=False)
    for objective in shown.objectives:
        table.add_column(Text(objective.metric), justify="right")
    for column in (*settings, "reason", "model"):
        table.add_column(Text(column))
    best_number = shown.best["number"] if shown.best else None
    for trial in shown.trials:
        values = [objective.of(trial) for objective in shown.objectives]
        table.add_row(
            str(trial["number"]),
            Text(_state(trial)),
            *("" if value is None else f"{value:,.{0 if value.is_integer() else 5}f}" for value in values),
            *(Text(text_of(trial["parameters"].get(setting, ""))) for setting in settings),
            Text(str(trial.get("reason") or "")),
            Reference.parse(trial["model"]).short if trial.get("model") else "",
            style="bold green" if trial["number"] == best_number else _STYLES.get(trial["state"], ""),
        )
    print_table(table)
    states = [trial["state"] for trial in shown.trials]
    counts = ", ".join(f"{states.count(state):,} {state.replace('_', ' ')}" for state in dict.fromkeys(states))
    best = f"; best: trial {shown.best['number']} with {values_of(shown, shown.best)}" if shown.best else ""
    typer.echo(f"\n{shown.name}: {counted(len(states), 'trial')}{f' ({counts})' if counts else ''}{best}")
    for message in dict.fromkeys(experiment.failed.values()):
        numbers = ", ".join(str(number) for number, other in sorted(experiment.failed.items()) if other == message)
        typer.echo(f"failed: trial {numbers}: {message}")
    typer.echo(f"ended: {_why(experiment)}" if experiment.reference else shown.state)


def _state(trial: Body) -> str:
    state = str(trial["state"]).replace("_", " ")
    return f"{state}, infeasible" if state == "succeeded" and not trial.get("feasible", True) else state


def events(shown: ExperimentView, seen: dict[int, str]) -> Iterator[str]:
    """A line for each trial whose state differs from `seen`, which is updated."""
    best = shown.best["number"] if shown.best else None
    for trial in shown.trials:
        number, state = trial["number"], trial["state"]
        if seen.get(number) == state:
            continue
        seen[number] = state
        if state == "running":
            parameters = ", ".join(f"{name} {text_of(value)}" for name, value in trial["parameters"].items())
            yield f"trial {number} started: {parameters}"
        elif state == "succeeded":
            yield f"trial {number}: {values_of(shown, trial)}{', best so far' if number == best else ''}"
        else:
            yield f"trial {number} {_state(trial)}: {trial.get('reason') or 'no reason'}"


@app.command()
def stop(name: ExperimentArgument, store: StoreOption = "") -> None:
    """Ask the controller of an experiment to end: it stops running jobs, and publishes the trials so far."""
    from gatehouse.tuning.access.journal import ask_to_stop

    opened = open_store(store)
    experiment = find_running(opened, name)
    already = "" if ask_to_stop(opened.objects, experiment.study) else " already"
    typer.echo(f"{experiment.short} is asked to end{already}; its jobs keep their checkpoints.")
    if asked_for(opened, experiment)["spec"].get("resume_policy") == "never":
        typer.echo("The next run of the training pipeline begins it anew (resume_policy: never).")
    else:
        typer.echo(f"It goes on with: gatehouse tuning resume {experiment.short}")


@app.command()
def resume(
    name: ExperimentArgument,
    max_trial_count: Annotated[
        int | None, typer.Option(min=1, help="How many trials it may have made at its end; default: as before.")
    ] = None,
    store: StoreOption = "",
) -> None:
    """Go on with an experiment that was interrupted or stopped, or that may use more than before; on this machine."""
    from gatehouse.tracking.training import track_experiment
    from gatehouse.tuning.stage import TuneRequest, study_key, tune

    opened = open_store(store)
    experiment = find_experiment(opened, name)
    try:
        request = TuneRequest.model_validate(asked_for(opened, experiment))
    except ValidationError as error:
        fields = ", ".join(".".join(map(str, problem["loc"])) for problem in error.errors())
        raise GatehouseError(
            f"{experiment.short} was begun by another version of Gatehouse, whose request differs in {fields}, so it "
            "cannot be resumed. Run the training pipeline: it makes a new experiment."
        ) from error
    shown = experiment.shown
    if max_trial_count is not None:
        if max_trial_count <= (made := len(shown.trials)):
            raise ConfigurationError(
                f"--max-trial-count: {experiment.short} already has {made} trials; expected more, found "
                f"{max_trial_count}."
            )
        enlarged = request.spec.model_dump() | {"max_trial_count": max_trial_count}
        request = TuneRequest.model_validate(request.model_dump() | {"spec": enlarged})
    if experiment.state == RUNNING:
        raise GatehouseError(
            f"{experiment.short} is running. See it with: gatehouse tuning show {experiment.short} --follow"
        )
    spec = request.spec
    if spec.resume_policy == "never":
        raise GatehouseError(f"{experiment.short} has resume_policy: never, so it cannot be resumed.")
    if experiment.reference and not shown.about.get("provisional"):
        if len(shown.trials) >= spec.max_trial_count:
            raise GatehouseError(
                f"{experiment.short} has made its {spec.max_trial_count} trials; give more with --max-trial-count."
            )
        ended, budget = str(shown.about.get("ended")), spec.budget.model_dump()
        if ended in budget and budget[ended] == shown.about["budget"][ended]:
            raise GatehouseError(
                f"{experiment.short} has used its budget of {ended}, {budget[ended]:g}; change it under tuning.budget "
                "in project.yaml and run the training pipeline."
            )
    if study_key(request) != experiment.study:
        raise GatehouseError(
            f"{experiment.short} was made by another version of the code, so its trials cannot be compared with new "
            "ones. Run the training pipeline: it makes a new experiment, for which `warm_start` can name this one."
        )
    if (prices := prices_of(Path.cwd())) is not None:
        os.environ.setdefault(PRICES, prices)
    log = logging.getLogger("gatehouse.tuning")
    log.addHandler(handler := logging.StreamHandler())
    log.setLevel(logging.INFO)
    try:
        result = tune(request.priced(), opened)
    finally:
        log.removeHandler(handler)
    track_experiment(opened, result.experiment)
    typer.echo(result.summary)
    typer.echo(f"experiment {Reference.parse(result.experiment).short}")
    typer.echo(f"report {rendered(opened, result.experiment)}")
    typer.echo("The next run of the training pipeline uses this result if its project has the same counts.")


@app.command("serve-storage")
def serve_storage(
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 in a pod.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65_535, help="Port.")] = 13_000,
) -> None:
    """Serve the database of GATEHOUSE_TUNING_STORAGE until SIGTERM, to clients with grpc://HOST:PORT in this variable.

    Clients need no credentials of the database. Optuna's proxy has no TLS and no passwords: only those who may change
    every study should reach the port.
    """
    from gatehouse.tuning.access.storage import named_url, serve

    serve(named_url(), host, port, typer.echo)


@app.command("import-katib")
def import_katib(
    file: Annotated[Path, typer.Argument(help="YAML of an Experiment, kubeflow.org/v1beta1.")],
    mapped: Annotated[
        list[str] | None, typer.Option("--map", help="THEIRS=OURS, as lr=optimizer.learning_rate; also metrics.")
    ] = None,
    write: Annotated[
        bool, typer.Option("--write", help=f"Put the section into {PROJECT_FILE} of this folder.")
    ] = False,
) -> None:
    """Print an Experiment of Katib as the `tuning` section of a project, and what could not be converted.

    It ends with 1 if the section is not valid as it is.
    """
    from gatehouse.tuning.katib import imported, with_section

    names = {name.strip(): setting.strip() for name, _, setting in (pair.partition("=") for pair in mapped or ())}
    if incomplete := [name for name, setting in names.items() if not name or not setting]:
        raise ConfigurationError(f"--map: expected THEIRS=OURS, found {', '.join(incomplete)}.")
    try:
        converted = imported(file.read_text(encoding="utf-8"), names)
    except (OSError, UnicodeDecodeError, ConfigurationError) as error:
        raise ConfigurationError(f"{file}: expected an Experiment of Katib: {error}") from error
    typer.echo(converted.text(), nl=False)
    left = converted.left
    typer.echo(f"\n{len(left)} not carried over:" if left else "\nAll of it was carried over.", err=True)
    for where, why in left:
        typer.echo(f"- {where}: {why}", err=True)
    if write:
        if not converted.tuning.get("parameters"):
            raise ConfigurationError(f"{file}: no parameter has a setting here, so nothing was written; see --map.")
        project = project_folder(None) / PROJECT_FILE
        project.write_text(with_section(project.read_text(encoding="utf-8"), converted.text()), encoding="utf-8")
        typer.echo(f"Written to {project}.", err=True)
    if not converted.valid:
        typer.echo("\nThe section is not valid as it is: change it by hand where `here:` stands above.", err=True)
        raise typer.Exit(1)


def _time(seconds: float) -> str:
    """A time of the store's clock, UTC; empty if unknown."""
    return time.strftime("%Y-%m-%d %H:%M", time.gmtime(seconds)) if seconds else ""


def _why(experiment: Experiment) -> str:
    """Why an experiment ended, in words; its state if it has not ended."""
    return ending(str(experiment.shown.about.get("ended") or "")) or experiment.shown.state


def _brief(experiment: Experiment) -> dict[str, object]:
    shown = experiment.shown
    return {
        "name": experiment.name,
        "state": experiment.state,
        "study": experiment.study,
        "reference": str(experiment.reference or ""),
        "trials": len(shown.trials),
        "best_trial": shown.best["number"] if shown.best else None,
        "values": dict(shown.best["values"]) if shown.best else {},
        "ended": shown.about.get("ended") or "",
        "why": _why(experiment),
        "began_at": _time(experiment.began),
        "changed_at": _time(experiment.changed),
    }
