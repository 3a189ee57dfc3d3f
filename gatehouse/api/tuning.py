"""Experiments that search hyperparameters, published, under way and interrupted: lists and stops them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from gatehouse.configuration.yaml_lines import nearest
from gatehouse.errors import ConfigurationError
from gatehouse.project.place import find
from gatehouse.runtime.plural import counted
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore
from gatehouse.tuning.journal import FOLDER, SILENT, ask_to_stop, is_asked_to_stop, silent_seconds, studies
from gatehouse.tuning.report import ExperimentView, ending

KIND = "experiments"
RUNNING, INTERRUPTED, ENDED = "running", "interrupted", "ended"
GOES_ON = "The next run of its pipeline goes on with it."
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

    def to_json(self) -> dict[str, Any]:
        """What a list says of it."""
        best: Mapping[str, Any] = self.shown.best or {}
        times = [datetime.fromtimestamp(time, UTC) if time else None for time in (self.began, self.changed)]
        return {
            "model": self.name,
            "state": self.state,
            "trials": sum(trial["state"] not in (RUNNING, INTERRUPTED) for trial in self.shown.trials),
            "best_trial": best.get("number"),
            "values": dict(best.get("values", {})),
            "began": times[0],
            "changed": times[1],
            "why": self.why,
            "study": self.study,
            "reference": str(self.reference or ""),
        }

    @property
    def why(self) -> str:
        """Why it ended, in words; its state if it has not ended."""
        return ending(str(self.shown.about.get("ended") or "")) or self.shown.state


def experiments(store: ArtifactStore, name: str = "") -> list[Experiment]:
    """All experiments of a store, or of one model, published or not, the last changed first.

    A study that continues after it was published is listed twice: as published, and in its present state. Raises
    ConfigurationError if the store has no model of this name, trained or only tuned.
    """
    listed = [_published(store, reference) for reference in store.references(KIND, name or None)]
    trials: dict[str, int] = {}
    for experiment in sorted(listed, key=lambda experiment: experiment.changed):
        assert experiment.reference
        count = int(store.manifest(experiment.reference).details.get("trials", 0))
        trials |= dict.fromkeys(_studies_of(store, experiment.reference), count)
    for study, about in studies(store.objects):
        if name in ("", about["name"]):
            experiment = under_way(store, study, about)
            # A controller publishes before it ends, so a study without more trials than a published one is that one.
            if experiment.state == RUNNING or len(experiment.shown.trials) > trials.get(study, 0):
                listed.append(experiment)
    if name and not listed:
        known = sorted({reference.name for kind in (KIND, "models") for reference in store.references(kind)})
        if name not in known:
            raise ConfigurationError(
                f"{store.address} has the models {', '.join(known) or '(none)'}: expected the name of one, found "
                f"{name!r}{nearest(name, known)}."
            )
    return sorted(listed, key=lambda experiment: experiment.changed, reverse=True)


def matching(store: ArtifactStore, text: str) -> Sequence[Experiment]:
    """All experiments that a text can name, newest first: those of a model, or one by its reference or study's key.

    Raises ConfigurationError, MissingArtifactError if there is none, or the text is the beginning of several keys.
    """
    if "/" in text:
        published = _published(store, find(store, text))
        again = [under_way(store, study, about) for study, about in studies(store.objects) if study == published.study]
        return [published, *(experiment for experiment in again if experiment.state == RUNNING)]
    begun = list(studies(store.objects)) if text else []
    of_model = {*(reference.name for reference in store.references(KIND)), *(about["name"] for _, about in begun)}
    if text in of_model:
        return experiments(store, text)
    keyed = [under_way(store, study, about) for study, about in begun if study.startswith(text)]
    if len(keyed) > 1:
        raise ConfigurationError(f"{text} is the beginning of {len(keyed)} studies. Name one: {_listed(keyed)}.")
    if not keyed:
        raise ConfigurationError(
            f"expected the name of a model, the reference of an experiment or the key of a study, found {text!r}, "
            f"which {store.address} does not hold. See `gatehouse tuning list`."
        )
    return keyed


def stop(store: ArtifactStore, text: str) -> tuple[Experiment, bool]:
    """Ask the controller of the running experiment that a text names to end.

    Gives the experiment, and whether it was asked for the first time. Raises ConfigurationError if no matching
    experiment is running, or several are.
    """
    named = matching(store, text)
    running = [experiment for experiment in named if experiment.state == RUNNING]
    if not running:
        short, state = named[0].short, named[0].state
        raise ConfigurationError(f"{short}: expected an experiment that is running, found one that is {state}.")
    if len(running) > 1:
        raise ConfigurationError(f"{text}: {len(running)} experiments are running. Name one: {_listed(running)}.")
    return running[0], ask_to_stop(store.objects, running[0].study)


def _listed(listed: Sequence[Experiment]) -> str:
    return ", ".join(f"{experiment.short} ({experiment.name}, {experiment.state})" for experiment in listed)


def _written(store: ArtifactStore, key: str) -> float:
    """When an object was written, by the store's clock; 0 if it does not exist."""
    stat = store.objects.stat(key)
    return stat.modified if stat else 0.0


def _times(store: ArtifactStore, study: str) -> tuple[float, float]:
    """When a study began, and when it was last written."""
    journal = sorted(store.objects.list(f"{FOLDER}/{study}/journal"))
    ends = (f"{FOLDER}/{study}/about.json", *journal[:1], *journal[-1:])  # `about.json` is rewritten for more trials.
    times = [time for time in (_written(store, key) for key in ends) if time]
    return min(times, default=0.0), max([*times, _written(store, f"{FOLDER}/{study}/controller.json")])


def _published(store: ArtifactStore, reference: Reference) -> Experiment:
    if reference.kind != KIND:
        raise ConfigurationError(f"{reference.short}: expected an experiment, found one of {reference.kind}.")
    about, trials = store.read_json(reference, "experiment.json"), store.read_json(reference, "trials.json")
    study = next(_studies_of(store, reference), "")
    began, changed = _times(store, study)[0] if study else 0.0, _written(store, f"{reference}/manifest.json")
    measured = next(iter(store.measurements(reference, "tune", "search")), {})
    failed = {int(number): message for number, message in measured.get("failed", {}).items()}
    view = ExperimentView(reference.name, about, trials)
    return Experiment(reference.name, study, reference, ENDED, view, began, changed, failed)


def _studies_of(store: ArtifactStore, reference: Reference) -> Iterator[str]:
    """Keys of the studies of a published experiment, the last first: several studies can give the same result."""
    return (str(body["study"]) for body in store.measurements(reference, "tune", "search") if "study" in body)


def under_way(store: ArtifactStore, study: str, about: Mapping[str, Any]) -> Experiment:
    """The experiment of a study, as it stands."""
    from gatehouse.tuning.study import read_study

    trials, state = read_study(store.objects, study)
    running = sum(not trial.ended for trial in trials)
    message = {
        RUNNING: f"Under way: {running} {'trial runs' if running == 1 else 'trials run'}",
        INTERRUPTED: f"Interrupted: its controller is gone, {counted(running, 'trial')} not finished. {GOES_ON}",
        ENDED: "Its trials have ended. Its controller publishes them now; if it is gone, the next run of its pipeline "
        "does",
    }
    if (silent := silent_seconds(store.objects, study) or 0.0) > _SILENT:
        message[RUNNING] += f"; its controller gave no sign of life for {silent:.0f} s, {SILENT:.0f} s mean interrupted"
    ended = "stopped" if is_asked_to_stop(store.objects, study) else ""
    if sum(trial.state == "failed" for trial in trials) > about["max_failed_trial_count"]:
        ended = "max_failed_trial_count"
    if ended and state != RUNNING:
        message[state] = f"Not published: {ending(ended)}"
    bodies = [trial.to_json() for trial in trials]
    if state == INTERRUPTED:  # A trial that the journal holds as running has ended with the controller.
        gone = {"state": INTERRUPTED, "reason": "its controller is gone"}
        bodies = [body | gone if body["state"] == RUNNING else body for body in bodies]
    view = ExperimentView(about["name"], about["experiment"] | {"ended": ended}, bodies, message[state])
    failed = {trial.number: trial.message for trial in trials if trial.message}
    return Experiment(about["name"], study, None, state, view, *_times(store, study), failed)
