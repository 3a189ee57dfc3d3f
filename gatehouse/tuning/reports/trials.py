"""All trials of an experiment as a table: state and reason, values, parameters, reference of the model."""

from collections.abc import Sequence

from gatehouse.reports.elements import Marked, table
from gatehouse.reports.format import Html
from gatehouse.reports.page import Report
from gatehouse.tuning.reports.shown import SUCCEEDED, Body, Shown, finite, told

_MOST = 200  # Above this number of rows, the table is folded below the best trials.
_BEST = 25
_MARKS = {"failed": "bad", "killed": "soft", "early_stopped": "soft", "running": "warn", "interrupted": "warn"}


def add_trials(page: Report, shown: Shown) -> None:
    """The section with all trials; if there are many, the best first and the full table folded."""
    page.section("Trials", count=f"{len(shown.trials):,}")
    if len(shown.trials) <= _MOST:
        page.element(_table(shown, shown.trials, "Trials"))
        return
    best = shown.ranked(shown.objectives[0])[:_BEST]
    page.note(f"The {len(best)} best; all trials are below.").element(_table(shown, best, "The best trials"))
    page.folded(f"All {len(shown.trials):,} trials", _table(shown, shown.trials, "All trials"))


def _table(shown: Shown, trials: Sequence[Body], label: str) -> Html:
    settings = list(dict.fromkeys(one.setting for one in shown.dimensions))
    measures = sorted({name for one in trials for name in one.get("measures") or ()})
    metrics = [one.metric for one in shown.objectives]
    measures = [name for name in measures if name not in metrics]
    best = shown.best["number"] if shown.best else None
    parents = ["parent"] if any(one.get("parent") is not None for one in trials) else []
    rows, marks = [], {}
    for at, one in enumerate(trials):
        feasible = one.get("feasible", True) or one["state"] != SUCCEEDED
        state = one["state"].replace("_", " ") + ("" if feasible else ", breaks a constraint")
        parameters = one["parameters"]
        rows.append(
            [
                Marked(one["number"], "best" if one["number"] == best else ""),
                state,
                *(one.get(name) for name in parents),
                *((finite((one.get("values") or {}).get(metric))) for metric in metrics),
                *((finite((one.get("measures") or {}).get(name))) for name in measures),
                *(told(parameters[name]) if name in parameters else "" for name in settings),
                one.get("reason") or "",
                one.get("model") or "",
            ]
        )
        mark = "warn" if not feasible else _MARKS.get(one["state"], "")
        mark = "good" if one["number"] == best else mark
        if mark:
            marks[at] = mark
    headers = ["trial", "state", *parents, *metrics, *measures, *settings, "reason", "model"]
    return table(headers, rows, marks, label=label)
