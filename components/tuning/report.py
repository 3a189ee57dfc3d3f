"""The HTML report of an experiment."""

from gatehouse.components.reports.charts import bar_chart
from gatehouse.components.reports.page import Report, Verdict
from gatehouse.components.tuning.experiment import Trial
from gatehouse.components.tuning.spec import SearchSpace


def experiment_report(name: str, space: SearchSpace, trials: list[Trial], best: Trial) -> str:
    """The page: best trial first, then all trials with their parameters and values."""
    value = f"{best.value:.5f}" if best.value is not None else ""
    budget = f"{space.epochs} epochs on {space.train_fraction:.0%} of the train rows"
    page = Report(
        f"Experiment for {name}",
        f"{len(trials)} trials, {space.algorithm}, {budget}",
        Verdict("pass", f"Trial {best.number} is best: validation {space.objective} {value}."),
    )
    page.section("Best parameters").facts({key: str(item) for key, item in best.parameters.items()})
    names = [parameter.name for parameter in space.parameters]
    rows = [
        [trial.number, *(str(trial.parameters[key]) for key in names), trial.value, trial.error] for trial in trials
    ]
    failed = {index: "bad" for index, trial in enumerate(trials) if trial.value is None}
    page.section("Trials").table(["trial", *names, space.objective, "error"], rows, failed)
    bars = [(f"trial {trial.number}", trial.value) for trial in trials if trial.value is not None]
    page.figures((bar_chart(bars, marker=best.value), f"Validation {space.objective}; the line marks the best trial."))
    return page.html()
