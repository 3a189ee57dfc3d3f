"""The experiments of a store, published and under way, and the one that a name means."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gatehouse.configuration.yaml_lines import nearest
from gatehouse.errors import ConfigurationError, MissingArtifactError
from gatehouse.runtime.plural import counted
from gatehouse.store.finding import find_reference
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore
from gatehouse.tuning.reports.experiment_view import ExperimentView, ending

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
        published = _read(store, find_reference(store, text))
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


def refreshed(store: ArtifactStore, experiment: Experiment) -> Experiment:
    """The present state of an experiment under way."""
    about = next(about for study, about in _studies(store) if study == experiment.study)
    return _under_way(store, experiment.study, about)


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
    measured: dict[str, str] = next((body.get("failed", {}) for body in store.measurements(reference, "tune")), {})
    failed = {int(number): message for number, message in measured.items()}
    shown = ExperimentView(reference.name, about, trials)
    return Experiment(reference.name, study, reference, ENDED, shown, began, changed, failed)


def _studies_of(store: ArtifactStore, reference: Reference) -> Iterator[str]:
    """Keys of the studies of a published experiment, the last first: several studies can give the same result."""
    return (str(measured["study"]) for measured in store.measurements(reference, "tune") if "study" in measured)


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
