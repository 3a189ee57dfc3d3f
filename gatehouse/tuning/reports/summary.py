"""The result and the best trials of an experiment as Markdown, for the UI of KFP."""

from pathlib import Path

from gatehouse.reports.format import number
from gatehouse.store.store import ArtifactStore
from gatehouse.tuning.reports.shown import Shown, told
from gatehouse.tuning.reports.verdict import subtitle, verdict

_MOST = 10


def write_markdown(store: ArtifactStore, reference: str, path: str) -> None:
    """Write `markdown` to a file; that nothing was searched where the reference is empty."""
    nothing = "No hyperparameters were searched: the project has no section `tuning`.\n"
    Path(path).write_text(markdown(store, reference) if reference else nothing)


def markdown(store: ArtifactStore, reference: str) -> str:
    """The result of an experiment, and a table of its best trials.

    Args:
        store: The artifact store.
        reference: Reference of the experiment.
    """
    about, trials = store.read_json(reference, "experiment.json"), store.read_json(reference, "trials.json")
    shown = Shown(store.manifest(reference).name, about, trials)
    said = verdict(shown)
    found = [f"- {line}" for line in (*said.reasons, *said.warnings)]
    settings = list(dict.fromkeys(one.setting for one in shown.dimensions))
    head = ["trial", *(one.metric for one in shown.objectives), *settings]
    rows = [
        [
            str(trial["number"]),
            *(number(one.of(trial)) for one in shown.objectives),
            *(told(trial["parameters"][name]) if name in trial["parameters"] else "" for name in settings),
        ]
        for trial in shown.ranked(shown.objectives[0])[:_MOST]
    ]
    table = [head, ["---"] * len(head), *rows]
    lines = [f"# Experiment for {shown.name}", "", subtitle(shown), "", *found, ""]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in table), ""])
