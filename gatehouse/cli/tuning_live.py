"""Shows the trials of an experiment: a live table on a terminal, plain lines elsewhere."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from gatehouse.cli.experiments import RUNNING, Found
from gatehouse.runtime.counting import counted
from gatehouse.store.reference import Reference
from gatehouse.tuning.reports.shown import Body, Shown, text_of, values_of

_STYLES = {
    "failed": "red",
    "killed": "dim",
    "early_stopped": "dim",
    "running": "yellow",
    "interrupted": "yellow",
    "succeeded": "",
}
_SECONDS = 1.0
_ROOM = 8  # Lines of a terminal that are needed around the table.


def trials_table(shown: Shown, trials: Sequence[Body] | None = None) -> Table:
    """Trials with state, objectives, parameters, reason and model; the best one is highlighted."""
    settings = list(dict.fromkeys(one.setting for one in shown.dimensions))
    table = Table("trial", "state", box=None, pad_edge=False)
    for one in shown.objectives:
        table.add_column(Text(one.metric), justify="right")
    for name in (*settings, "reason", "model"):
        table.add_column(Text(name))
    best = shown.best["number"] if shown.best else None
    for trial in shown.trials if trials is None else trials:
        style = "bold green" if trial["number"] == best else _STYLES.get(trial["state"], "")
        values = [one.of(trial) for one in shown.objectives]
        table.add_row(
            str(trial["number"]),
            Text(_state(trial)),
            *("" if value is None else f"{value:,.{0 if value.is_integer() else 5}f}" for value in values),
            *(Text(text_of(trial["parameters"].get(name, ""))) for name in settings),
            Text(str(trial.get("reason") or "")),
            Reference.parse(trial["model"]).short if trial.get("model") else "",
            style=style,
        )
    return table


def headline(shown: Shown) -> str:
    """The state of an experiment in one line."""
    states = [one["state"] for one in shown.trials]
    counts = ", ".join(f"{states.count(state):,} {state.replace('_', ' ')}" for state in dict.fromkeys(states))
    best = f"; best: trial {shown.best['number']} with {values_of(shown, shown.best)}" if shown.best else ""
    trials = counted(len(states), "trial")
    return f"{shown.name}: {trials}{f' ({counts})' if counts else ''}{best}"


def follow(found: Found, refresh: Callable[[Found], Found], console: Console | None = None) -> Found:
    """Show the trials of an experiment until its controller has ended; returns its last state.

    Args:
        found: The experiment.
        refresh: Reads it again.
        console: Where to print; by default the standard output.
    """
    out = console or Console(highlight=False, markup=False)
    seen: dict[int, str] = {}
    if not out.is_terminal:
        while True:
            for line in events(found.shown, seen):
                out.print(line, soft_wrap=True, markup=False)
            if found.state != RUNNING:
                return found
            time.sleep(_SECONDS)
            found = refresh(found)
    with Live(_screen(found.shown, out.height), console=out, refresh_per_second=2) as live:
        while found.state == RUNNING:
            time.sleep(_SECONDS)
            found = refresh(found)
            live.update(_screen(found.shown, out.height))
        live.update(trials_table(found.shown))
    return found


def events(shown: Shown, seen: dict[int, str]) -> Iterator[str]:
    """A line for each trial whose state changed since `seen`, which is updated."""
    best = shown.best["number"] if shown.best else None
    for trial in shown.trials:
        number, state = trial["number"], trial["state"]
        if seen.get(number) == state:
            continue
        seen[number] = state
        if state == "running":
            words = ", ".join(f"{name} {text_of(value)}" for name, value in trial["parameters"].items())
            yield f"trial {number} started: {words}"
        elif state == "succeeded":
            yield f"trial {number}: {values_of(shown, trial)}{', best so far' if number == best else ''}"
        else:
            yield f"trial {number} {_state(trial)}: {trial.get('reason') or 'no reason'}"


def _screen(shown: Shown, height: int) -> Group:
    """A view that fits the terminal: the running and the last trials, and the best below them."""
    trials: list[Any] = list(shown.trials)[-max(1, height - _ROOM) :]
    running = [one for one in shown.trials if one["state"] == "running" and one not in trials]
    kept = [*running, *trials][-max(1, height - _ROOM) :]
    left = len(shown.trials) - len(kept)
    note = f"{left:,} earlier trials are not shown" if left else ""
    return Group(trials_table(shown, kept), Text(note, style="dim"), Text(headline(shown)))


def _state(trial: Body) -> str:
    state = str(trial["state"]).replace("_", " ")
    return f"{state}, infeasible" if state == "succeeded" and not trial.get("feasible", True) else state
