"""The page about an experiment: the best trial, and all trials with their parameters and values."""

from typing import Any

from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.reports.format import number
from gatehouse.components.reports.page import Report, Verdict
from gatehouse.components.reports.row_charts import Dot, dot_chart


def page(store: ArtifactStore, reference: str) -> str:
    """The page of an experiment, as HTML.

    Args:
        store: Where the artifact is.
        reference: Of the experiment.
    """
    about, trials = store.read_json(reference, "experiment.json"), store.read_json(reference, "trials.json")
    objective, best = about["objective"][0]["metric"], trials[about["best_trial"]]
    ended = [one for one in trials if one["state"] == "succeeded"]
    drawn = Report(
        f"Experiment for {store.manifest(reference).name}",
        f"{len(trials)} trials, {about['algorithm']['name']}, {_budget(about['trial_settings'])}",
        Verdict(
            "pass",
            f"Trial {best['number']} is best: validation {objective} {number(best['values'][objective])}.",
            warnings=tuple(
                f"Trial {one['number']} has no value: {one['reason']}" for one in trials if one not in ended
            ),
            title="Parameters found",
        ),
    )
    drawn.section("Best parameters").facts({name: _rounded(value) for name, value in best["parameters"].items()})
    names = list(best["parameters"])
    rows = [
        [
            one["number"],
            *(_rounded(one["parameters"].get(name, "")) for name in names),
            one["values"].get(objective),
            one["reason"],
        ]
        for one in trials
    ]
    failed = {index: "bad" for index, one in enumerate(trials) if one not in ended}
    drawn.section("Trials", count=f"{len(trials):,}").table(["trial", *names, objective, "reason"], rows, failed)
    dots = [Dot(f"trial {one['number']}", one["values"][objective]) for one in ended]
    chart = dot_chart(dots, f"validation {objective}", [("best", best["values"][objective])])
    drawn.figure(chart, f"Validation {objective} of every trial that ended.")
    return drawn.html()


def _rounded(value: Any) -> str:
    """A parameter with four figures, as a person reads it; `trials.json` holds all."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _budget(settings: dict[str, Any]) -> str:
    """What trials had in place of the settings of the training."""
    return ", ".join(f"{name} {value}" for name, value in settings.items()) or "on the full budget"
