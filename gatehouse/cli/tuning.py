"""`gatehouse tuning`: experiments that search hyperparameters, published and under way."""

import time
from collections.abc import Iterator
from typing import Annotated

import typer

from gatehouse.api import tuning
from gatehouse.api.tuning import RUNNING
from gatehouse.cli.output import JsonOption, StoreOption, show
from gatehouse.project.place import open_store
from gatehouse.runtime.plural import counted
from gatehouse.tuning.journal import studies
from gatehouse.tuning.report import Body, ExperimentView, text_of
from gatehouse.tuning.trial import beside, words

app = typer.Typer(no_args_is_help=True)
ExperimentArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="A model (its newest experiment), a reference, or the key of a study.")
]
_SECONDS = 1.0


@app.command("list")
def list_experiments(
    name: Annotated[str, typer.Argument(help="Only of this model.")] = "",
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """List experiments, published or not: the one that was last changed first."""
    opened = open_store(store)
    listed = tuning.experiments(opened, name)
    which = f"no experiments of {name}" if name else "no experiments"
    empty = f"{opened.address} has {which}. A training run with `tuning` in its project makes one."
    show([experiment.to_json() for experiment in listed], as_json, empty=empty)


@app.command("show")
def show_experiment(
    name: ExperimentArgument,
    follow: Annotated[
        bool, typer.Option("--follow", help="Print a line for each trial as it changes, until the experiment ends.")
    ] = False,
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Show the trials of an experiment, published or under way."""
    opened = open_store(store)
    experiment = tuning.matching(opened, name)[0]
    seen: dict[int, str] = {}
    while follow and not as_json and experiment.state == RUNNING:
        for line in events(experiment.shown, seen):
            typer.echo(line)
        time.sleep(_SECONDS)
        about = next(about for study, about in studies(opened.objects) if study == experiment.study)
        experiment = tuning.under_way(opened, experiment.study, about)
    shown = experiment.shown
    best = shown.best["number"] if shown.best else None
    rows = [
        beside(
            {"trial": f"{trial['number']}{' *' if trial['number'] == best else ''}", "state": _state(trial)}
            | {objective.metric: trial["values"].get(objective.metric) for objective in shown.objectives}
            | {"reason": trial.get("reason"), "model": trial.get("model")},
            {setting: text_of(trial["parameters"].get(setting, "")) for setting in shown.settings},
        )
        for trial in shown.trials
    ]
    body = {"trials": list(shown.trials), "failed": dict(experiment.failed)}
    show(experiment.to_json() | body, as_json, view=rows)
    if as_json:
        return
    states = [trial["state"] for trial in shown.trials]
    counts = ", ".join(f"{states.count(state):,} {state.replace('_', ' ')}" for state in dict.fromkeys(states))
    best_trial = f"; best (*): {_best(shown)}" if shown.best else ""
    typer.echo(f"\n{shown.name}: {counted(len(states), 'trial')}{f' ({counts})' if counts else ''}{best_trial}")
    for message in dict.fromkeys(experiment.failed.values()):
        numbers = ", ".join(str(number) for number, other in sorted(experiment.failed.items()) if other == message)
        typer.echo(f"failed: trial {numbers}: {message}")
    typer.echo(f"ended: {experiment.why}" if experiment.reference else shown.state)


def _state(trial: Body) -> str:
    state = str(trial["state"]).replace("_", " ")
    return f"{state}, infeasible" if state == "succeeded" and not trial.get("feasible", True) else state


def _best(shown: ExperimentView) -> str:
    return f"trial {shown.best['number']} with {words(shown.best['values'])}" if shown.best else ""


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
            yield f"trial {number}: {words(trial['values'])}{', best so far' if number == best else ''}"
        else:
            yield f"trial {number} {_state(trial)}: {trial.get('reason') or 'no reason'}"


@app.command()
def stop(name: ExperimentArgument, store: StoreOption = "") -> None:
    """Ask the controller of an experiment to end: it stops running jobs, and publishes the trials so far."""
    experiment, first = tuning.stop(open_store(store), name)
    typer.echo(f"{experiment.short} is asked to end{'' if first else ' already'}; its jobs keep their checkpoints.")
    typer.echo(tuning.GOES_ON)
