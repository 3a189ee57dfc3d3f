"""`gatehouse tuning`: experiments that search hyperparameters, published and under way."""

import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from rich.table import Table
from rich.text import Text

from gatehouse.cli.output import JsonOption, StoreOption, print_json, print_table
from gatehouse.configuration.yaml_lines import nearest
from gatehouse.errors import ConfigurationError, GatehouseError, MissingArtifactError
from gatehouse.project.place import find, open_store, prices_of
from gatehouse.reports.contents import rendered
from gatehouse.runtime.plural import counted
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.provenance import PRICES
from gatehouse.tuning.reports.experiment_view import Body, ExperimentView, ending, text_of, values_of

KIND = "experiments"
RUNNING, INTERRUPTED, ENDED = "running", "interrupted", "ended"
_SILENT = 15.0
"""Seconds without a sign of life of a controller, which gives one every five, that are worth a word."""


@dataclass(frozen=True)
class Experiment:
    """One experiment, by its model's name; its state is `running`, `interrupted`, or `ended`.

    Attributes:
        study: Key of its study; empty for a published one without a known study.
        reference: None if it is not published.
        began, changed: Times in seconds since 1970 by the store's clock; 0 if the store has no study.
        failed: Error messages of failed trials, by number.
    """

    name: str
    study: str
    reference: Reference | None
    state: str
    shown: ExperimentView
    began: float
    changed: float
    failed: Mapping[int, str] = field(default_factory=dict)

    @property
    def short(self) -> str:
        """Its reference or key, shortened."""
        return self.reference.short if self.reference else self.study[:12]


def experiments(store: ArtifactStore, name: str = "") -> Iterator[Experiment]:
    """All experiments of a store, or of one model, published or not, the last changed first.

    A study that continues after it was published is listed twice: as published, and in its present state.
    """
    dated: list[tuple[float, Experiment | Reference]] = []
    published = [
        (_written(store, f"{reference}/manifest.json"), reference) for reference in store.references(KIND, name or None)
    ]
    trials = {
        study: int(store.manifest(reference).details.get("trials", 0))
        for _, reference in sorted(published, key=lambda pair: pair[0])
        for study in _studies_of(store, reference)
    }
    for study, about in _studies(store):
        if not name or about["name"] == name:
            experiment = _under_way(store, study, about)
            # A controller publishes before it ends, so a study without more trials than a published one is that one.
            if experiment.state == RUNNING or len(experiment.shown.trials) > trials.get(study, 0):
                dated.append((experiment.changed, experiment))
    for _, entry in sorted([*dated, *published], key=lambda pair: pair[0], reverse=True):
        yield _read(store, entry) if isinstance(entry, Reference) else entry


def find_experiment(store: ArtifactStore, text: str) -> Experiment:
    """The experiment that a text names: by reference, by the key of its study, or the newest of a model.

    Raises MissingArtifactError if there is none. Raises ConfigurationError if the text is empty, or is the beginning of
    several keys.
    """
    return _matching(store, text)[0]


def find_running(store: ArtifactStore, text: str) -> Experiment:
    """The running experiment that a text names.

    Raises MissingArtifactError if there is none. Raises ConfigurationError if no matching experiment is running, or
    several are.
    """
    matching = _matching(store, text)
    running = [experiment for experiment in matching if experiment.state == RUNNING]
    if not running:
        first = matching[0]
        raise ConfigurationError(
            f"{first.short}: expected an experiment that is running, found one that is {first.state}."
        )
    if len(running) > 1:
        raise ConfigurationError(f"{text}: {len(running)} experiments are running. Name one: {_listed(running)}.")
    return running[0]


def _matching(store: ArtifactStore, text: str) -> Sequence[Experiment]:
    """All experiments that a text can name, newest first: those of a model, or a single one."""
    if "/" in text:
        published = _read(store, find(store, text))
        again = [_under_way(store, study, about) for study, about in _studies(store) if study == published.study]
        return [published, *(experiment for experiment in again if experiment.state == RUNNING)]
    if text and (of_model := list(experiments(store, text))):
        return of_model
    begun = [_under_way(store, study, about) for study, about in _studies(store) if text and study.startswith(text)]
    if len(begun) > 1:
        raise ConfigurationError(f"{text} is the beginning of {len(begun)} studies. Name one: {_listed(begun)}.")
    if not begun:
        raise ConfigurationError(
            f"expected the name of a model, the reference of an experiment or the key of a study, found {text!r}, "
            f"which {store.address} does not hold. See `gatehouse tuning list`."
        )
    return begun


def require_model(store: ArtifactStore, name: str) -> None:
    """Refuse the name of a model that this store does not have, trained or only tuned."""
    models = sorted({reference.name for kind in (KIND, "models") for reference in store.references(kind)})
    if name not in models:
        raise ConfigurationError(
            f"{store.address} has the models {', '.join(models) or '(none)'}: expected the name of one, found "
            f"{name!r}{nearest(name, models)}."
        )


def _listed(listed: Sequence[Experiment]) -> str:
    return ", ".join(f"{experiment.short} ({experiment.name}, {experiment.state})" for experiment in listed)


def asked_for(store: ArtifactStore, experiment: Experiment) -> dict[str, Any]:
    """The request of an experiment, as its controller recorded it.

    Raises MissingArtifactError if the store has no study of it.
    """
    for study, about in _studies(store):
        if study == experiment.study:
            request: dict[str, Any] = about["request"]
            return request
    raise MissingArtifactError(f"{experiment.short}: {store.address} holds no study of it, so it cannot be resumed.")


def _written(store: ArtifactStore, key: str) -> float:
    """When an object was written, by the store's clock; 0 if it does not exist."""
    stat = store.objects.stat(key)
    return stat.modified if stat else 0.0


def _times(store: ArtifactStore, study: str) -> tuple[float, float]:
    """When a study began, and when it was last written."""
    from gatehouse.tuning.access.journal import FOLDER

    journal = sorted(store.objects.list(f"{FOLDER}/{study}/journal"))
    ends = (f"{FOLDER}/{study}/about.json", *journal[:1], *journal[-1:])  # `about.json` is rewritten for more trials.
    times = [time for time in (_written(store, key) for key in ends) if time]
    return min(times, default=0.0), max([*times, _written(store, f"{FOLDER}/{study}/controller.json")])


def _read(store: ArtifactStore, reference: Reference) -> Experiment:
    if reference.kind != KIND:
        raise ConfigurationError(f"{reference.short}: expected an experiment, found one of {reference.kind}.")
    about, trials = store.read_json(reference, "experiment.json"), store.read_json(reference, "trials.json")
    study = next(_studies_of(store, reference), "")
    began, changed = _times(store, study)[0] if study else 0.0, _written(store, f"{reference}/manifest.json")
    measured = next(iter(store.measurements(reference, "tune", "search")), {})
    failed = {int(number): message for number, message in measured.get("failed", {}).items()}
    shown = ExperimentView(reference.name, about, trials)
    return Experiment(reference.name, study, reference, ENDED, shown, began, changed, failed)


def _studies_of(store: ArtifactStore, reference: Reference) -> Iterator[str]:
    """Keys of the studies of a published experiment, the last first: several studies can give the same result."""
    return (str(body["study"]) for body in store.measurements(reference, "tune", "search") if "study" in body)


def _studies(store: ArtifactStore) -> Iterator[tuple[str, dict[str, Any]]]:
    from gatehouse.tuning.access.journal import studies

    return studies(store.objects)


def _under_way(store: ArtifactStore, study: str, about: dict[str, Any]) -> Experiment:
    from gatehouse.tuning.access.journal import SILENT, is_asked_to_stop, silent_seconds
    from gatehouse.tuning.spec import ExperimentSpec
    from gatehouse.tuning.study import read_study

    spec = ExperimentSpec.model_validate(about["request"]["spec"])
    trials, state = read_study(store.objects, study)
    running = sum(not trial.ended for trial in trials)
    message = {
        RUNNING: f"Under way: {running} {'trial runs' if running == 1 else 'trials run'}",
        INTERRUPTED: f"Interrupted: its controller is gone, {counted(running, 'trial')} not finished. The next "
        f"`gatehouse run` goes on with it, or: gatehouse tuning resume {study[:12]}",
        ENDED: "Its trials have ended. Its controller publishes them now; if it is gone, gatehouse tuning resume does",
    }
    if (silent := silent_seconds(store.objects, study)) > _SILENT:
        message[RUNNING] += f"; its controller gave no sign of life for {silent:.0f} s, {SILENT:.0f} s mean interrupted"
    if spec.resume_policy == "never":  # Its study is only in the memory of its controller.
        state = state if state == RUNNING else "interrupted"
        message[RUNNING] = "Under way: its trials are seen once it has ended (resume_policy: never)"
        message[INTERRUPTED] = "Interrupted, and nothing of it was kept (resume_policy: never)"
    ended = "stopped" if is_asked_to_stop(store.objects, study) else ""
    if sum(trial.state == "failed" for trial in trials) > spec.max_failed_trial_count:
        ended = "max_failed_trial_count"
    if ended and state != RUNNING:
        message[state] = f"Not published: {ending(ended)}"
    bodies = [trial.to_json() for trial in trials]
    if state == INTERRUPTED:  # A trial that the journal holds as running has ended with the controller.
        gone = {"state": INTERRUPTED, "reason": "its controller is gone"}
        bodies = [body | gone if body["state"] == RUNNING else body for body in bodies]
    view = ExperimentView(about["name"], spec.described(int(about["steps"])) | {"ended": ended}, bodies, message[state])
    failed = {trial.number: trial.message for trial in trials if trial.message}
    return Experiment(about["name"], study, None, state, view, *_times(store, study), failed)


app = typer.Typer(no_args_is_help=True, help="Experiments: list, show, resume, stop, serve-storage.")
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
        about = next(about for study, about in _studies(opened) if study == experiment.study)
        experiment = _under_way(opened, experiment.study, about)
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
