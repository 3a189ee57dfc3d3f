"""`gatehouse tuning`: experiments that search hyperparameters, published and under way."""

import logging
import os
import time
import webbrowser
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from gatehouse.cli.experiments import (
    INTERRUPTED,
    RUNNING,
    Found,
    asked_for,
    experiments,
    find_experiment,
    find_running,
    refreshed,
    require_model,
)
from gatehouse.cli.output import JsonOption, StoreOption, open_store, print_json, print_table
from gatehouse.cli.place import PROJECT_FILE, prices_of, project_folder
from gatehouse.cli.tuning_live import follow as follow_trials
from gatehouse.cli.tuning_live import headline, trials_table
from gatehouse.cli.tuning_resumed import enlarged, request_of, require_more, used_of
from gatehouse.errors import ConfigurationError, GatehouseError
from gatehouse.reports.rendering import rendered
from gatehouse.store.reference import Reference
from gatehouse.tracking.cost import PRICES
from gatehouse.tuning.reports.shown import ending, values_of

app = typer.Typer(
    no_args_is_help=True, help="Experiments: list, show, report, resume, stop, serve-storage, import-katib."
)
ExperimentArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="A model (its newest experiment), a reference, or the key of a study.")
]


@app.command("list")
def list_experiments(
    name: Annotated[str, typer.Argument(help="Only of this model.")] = "",
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """List experiments, published or not: the one that was last changed first. Times are UTC."""
    opened = open_store(store)
    found = list(experiments(opened, name))
    if name and not found:
        require_model(opened, name)
    if as_json:
        print_json([_brief(one) for one in found])
        return
    if not found:
        which = f"no experiments of {name}" if name else "no experiments"
        typer.echo(f"{opened.address} has {which}. A training run with `tuning` in its project makes one.")
        return
    heads = ("model", "state", "trials", "best", "began", "ended", "why", "experiment")
    table = Table(*heads, box=None, pad_edge=False)
    for one in found:
        best = f"trial {one.shown.best['number']}: {values_of(one.shown, one.shown.best)}" if one.shown.best else ""
        done = sum(each["state"] not in (RUNNING, INTERRUPTED) for each in one.shown.trials)
        began, ended = _time(one.began), "" if one.state == RUNNING else _time(one.changed)
        table.add_row(
            *map(Text, (one.name, one.state, f"{done:,}", best, began, ended, _why(one).partition(". ")[0], one.short))
        )
    print_table(table)


@app.command()
def show(
    name: ExperimentArgument,
    follow: Annotated[
        bool, typer.Option("--follow", help="Show trials as they come, until the experiment ends.")
    ] = False,
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Show the trials of an experiment, published or under way."""
    opened = open_store(store)
    found = find_experiment(opened, name)
    if as_json:
        print_json(_brief(found) | {"trials": list(found.shown.trials), "failed": dict(found.failed)})
        return
    if follow and found.state == RUNNING:
        found = follow_trials(found, lambda one: refreshed(opened, one))
    else:
        print_table(trials_table(found.shown))
    typer.echo(f"\n{headline(found.shown)}")
    for message in dict.fromkeys(found.failed.values()):
        numbers = ", ".join(str(number) for number, each in sorted(found.failed.items()) if each == message)
        typer.echo(f"failed: trial {numbers}: {message}")
    typer.echo(f"ended: {_why(found)}" if found.reference else found.shown.state)


@app.command()
def report(
    name: ExperimentArgument,
    store: StoreOption = "",
    open_page: Annotated[bool, typer.Option("--open/--no-open", help="Open it in a browser.")] = True,
) -> None:
    """Draw the page of an experiment, print where it is, and open it; of one under way it shows it as it is now."""
    opened = open_store(store)
    found = find_experiment(opened, name)
    if found.reference:
        page = rendered(opened, found.reference)
    else:
        from gatehouse.tuning.reports.page import drawn

        page = opened.scratch("tuning") / f"{found.study}.html"
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(drawn(found.shown), encoding="utf-8")
    typer.echo(str(page))
    if open_page:
        webbrowser.open(page.resolve().as_uri())


@app.command()
def stop(name: ExperimentArgument, store: StoreOption = "") -> None:
    """Ask the controller of an experiment to end: running jobs are stopped, and what there is is published."""
    from gatehouse.tuning.access.journal import ask_to_stop

    opened = open_store(store)
    found = find_running(opened, name)
    asked = ask_to_stop(opened.objects, found.study)
    typer.echo(f"{found.short} is asked to end{'' if asked else ' already'}; its running jobs keep their checkpoints.")
    if asked_for(opened, found)["spec"].get("resume_policy") == "never":
        typer.echo("The next run of the training pipeline begins it anew (resume_policy: never).")
    else:
        typer.echo(f"It goes on with: gatehouse tuning resume {found.short}")


@app.command()
def resume(
    name: ExperimentArgument,
    max_trial_count: Annotated[
        int | None, typer.Option(min=1, help="How many trials it may have made at its end; default: as before.")
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(help="How many minutes it may have taken at its end; default: as before.")
    ] = None,
    cost: Annotated[
        float | None,
        typer.Option(help="What it may have cost at its end, by the prices of the project here; default: as before."),
    ] = None,
    steps: Annotated[
        int | None, typer.Option(help="How many steps its trials may have taken at its end; default: as before.")
    ] = None,
    store: StoreOption = "",
) -> None:
    """Go on with an experiment that was interrupted or stopped, or that may use more than before; on this machine."""
    from gatehouse.tracking.training import track_experiment
    from gatehouse.tuning.stage import TuneRequest, study_key, tune

    opened = open_store(store)
    found = find_experiment(opened, name)
    request = request_of(opened, found)
    more = {"max_trial_count": max_trial_count, "minutes": minutes, "cost": cost, "steps": steps}
    request = TuneRequest.model_validate(
        request.model_dump() | {"spec": enlarged(found, request.spec, more, used_of(opened, found))}
    )
    if found.state == RUNNING:
        raise GatehouseError(f"{found.short} is running. See it with: gatehouse tuning show {found.short} --follow")
    require_more(found, request.spec)
    if study_key(request) != found.study:
        raise GatehouseError(
            f"{found.short} was made by another version of the code, so its trials cannot be compared with new ones. "
            "Run the training pipeline: it makes a new experiment, for which `warm_start` can name this one."
        )
    if (prices := prices_of(Path.cwd())) is not None:
        os.environ.setdefault(PRICES, prices)
    request = request.priced()
    told = logging.getLogger("gatehouse.tuning")
    told.addHandler(handler := logging.StreamHandler())
    told.setLevel(logging.INFO)
    try:
        result = tune(request, opened)
    finally:
        told.removeHandler(handler)
    track_experiment(opened, result.experiment)
    typer.echo(result.summary)
    typer.echo(f"experiment {Reference.parse(result.experiment).short}")
    typer.echo(f"report {rendered(opened, result.experiment)}")
    typer.echo(
        "The next run of the training pipeline trains with what it found, where its project says the same counts."
    )


@app.command("serve-storage")
def serve_storage(
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 in a pod.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65_535, help="Port.")] = 13_000,
) -> None:
    """Serve the database of GATEHOUSE_TUNING_STORAGE until SIGTERM, to clients with grpc://HOST:PORT in this variable.

    Clients need no credentials of the database. Optuna's proxy has no TLS and no passwords: only those who may change
    every study should reach the port.
    """
    from gatehouse.tuning.access.address import named_url
    from gatehouse.tuning.access.proxy import serve

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
    """Print an Experiment of Katib as the `tuning` section of a project, and what could not be carried over.

    It ends with 1 where the section is not valid as it is.
    """
    from gatehouse.tuning.katib import imported, with_section

    names = {theirs.strip(): ours.strip() for theirs, _, ours in (each.partition("=") for each in mapped or ())}
    if wrong := [theirs for theirs, ours in names.items() if not theirs or not ours]:
        raise ConfigurationError(f"--map: expected THEIRS=OURS, found {', '.join(wrong)}.")
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"{file}: expected a YAML file of Katib, found none that can be read: {error}"
        ) from error
    try:
        found = imported(text, names)
    except ConfigurationError as error:
        raise ConfigurationError(f"{file}: {error}") from error
    typer.echo(found.text(), nl=False)
    typer.echo(f"\n{len(found.left)} not carried over:" if found.left else "\nAll of it was carried over.", err=True)
    for where, why in found.left:
        typer.echo(f"- {where}: {why}", err=True)
    if write:
        if not found.tuning.get("parameters"):
            raise ConfigurationError(f"{file}: no parameter has a setting here, so nothing was written; see --map.")
        project = project_folder(None) / PROJECT_FILE
        project.write_text(with_section(project.read_text(encoding="utf-8"), found.text()), encoding="utf-8")
        typer.echo(f"Written to {project}; `gatehouse check` says whether it fits the model.", err=True)
    if not found.valid:
        typer.echo("\nThe section is not valid as it is: change it by hand where `here:` stands above.", err=True)
        raise typer.Exit(1)


def _time(seconds: float) -> str:
    """A time of the store's clock, UTC; empty if unknown."""
    return time.strftime("%Y-%m-%d %H:%M", time.gmtime(seconds)) if seconds else ""


def _why(found: Found) -> str:
    """Why an experiment ended, in words; if it has not ended, its state."""
    return ending(str(found.shown.about.get("ended") or "")) or found.shown.state


def _brief(found: Found) -> dict[str, object]:
    shown = found.shown
    return {
        "name": found.name,
        "state": found.state,
        "study": found.study,
        "reference": str(found.reference or ""),
        "trials": len(shown.trials),
        "best_trial": shown.best["number"] if shown.best else None,
        "values": dict(shown.best["values"]) if shown.best else {},
        "ended": shown.about.get("ended") or "",
        "why": _why(found),
        "began_at": _time(found.began),
        "changed_at": _time(found.changed),
    }
