"""The page about an experiment: the best trial, and all trials with their parameters and values."""

from typing import Any

from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.reports.charts import bar_chart
from gatehouse.components.reports.page import Report, Verdict


def page(store: ArtifactStore, reference: str) -> str:
    """The page of an experiment, as HTML.

    Args:
        store: Where the artifact is.
        reference: Of the experiment.
    """
    about, trials = store.read_json(reference, "experiment.json"), store.read_json(reference, "trials.json")
    objective, best = about["objective"], trials[about["best_trial"]]
    drawn = Report(
        f"Experiment for {store.manifest(reference).name}",
        f"{len(trials)} trials, {about['algorithm']}, {_budget(about['budget'])}",
        Verdict("pass", f"Trial {best['number']} is best: validation {objective} {best['value']:.5f}."),
    )
    drawn.section("Best parameters").facts({name: str(value) for name, value in best["parameters"].items()})
    names = list(best["parameters"])
    rows = [
        [one["number"], *(str(one["parameters"][name]) for name in names), one["value"], one["error"]] for one in trials
    ]
    failed = {index: "bad" for index, one in enumerate(trials) if one["value"] is None}
    drawn.section("Trials").table(["trial", *names, objective, "error"], rows, failed)
    bars = [(f"trial {one['number']}", one["value"]) for one in trials if one["value"] is not None]
    drawn.figures((bar_chart(bars, marker=best["value"]), f"Validation {objective}; the line marks the best trial."))
    return drawn.html()


def _budget(settings: dict[str, Any]) -> str:
    """What trials had in place of the settings of the training."""
    return ", ".join(f"{name} {value}" for name, value in settings.items()) or "on the full budget"
