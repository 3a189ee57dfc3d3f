"""The experiments of a store as commands show them: published ones, those under way, those that were interrupted."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gatehouse.components.artifacts.reference import Reference
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.tuning.reports.shown import Shown
from gatehouse.errors import ConfigurationError, MissingArtifactError

KIND = "experiments"
RUNNING, INTERRUPTED, ENDED = "running", "interrupted", "ended"


@dataclass(frozen=True)
class Found:
    """One experiment.

    Attributes:
        name: Of the model that is searched for.
        study: Key of its study; empty for a published one that names none.
        reference: Of what is published; None for one that is not.
        state: `running`, `interrupted`, or `ended`.
        shown: What is known of it.
    """

    name: str
    study: str
    reference: Reference | None
    state: str
    shown: Shown

    @property
    def short(self) -> str:
        """How a person names it: its reference, or its key, cut."""
        return self.reference.short if self.reference else self.study[:12]


def experiments(store: ArtifactStore, name: str = "") -> Iterator[Found]:
    """All experiments of a store, or of one model: those that are not published first, then the newest.

    A study that goes on after something of it was published stands there twice: as it was, and as it is.
    """
    published = sorted(_published(store, name), key=lambda one: _made(store, one), reverse=True)
    trials = {str(about.get("study", "")): about for about in map(_details(store), reversed(published))}
    for study, about in _studies(store):
        if name and about["name"] != name:
            continue
        found = _under_way(store, study, about)
        # A controller ends only after it has published, so what has no more trials than was published is that.
        if found.state == RUNNING or len(found.shown.trials) > int(trials.get(study, {}).get("trials", 0)):
            yield found
    for reference in published:
        yield _read(store, reference)


def find_experiment(store: ArtifactStore, text: str) -> Found:
    """The experiment that is meant: by reference, by the key of its study, or the newest of a model.

    Raises:
        MissingArtifactError: if there is none.
        ConfigurationError: if a key that was cut begins several.
    """
    if "/" in text:
        from gatehouse.commands.output import find

        return _read(store, find(store, text))
    for found in experiments(store, text):
        return found
    begun = [(study, about) for study, about in _studies(store) if study.startswith(text)]
    if len(begun) > 1:
        raise ConfigurationError(f"{text} is the beginning of {len(begun)} studies. Give more of the key.")
    if not begun:
        raise MissingArtifactError(
            f"{text}: expected the name of a model, the reference of an experiment or the key of a study; "
            f"{store.address} holds none. See `gatehouse tuning list`."
        )
    return _under_way(store, *begun[0])


def asked_for(store: ArtifactStore, found: Found) -> dict[str, Any]:
    """The request of an experiment, as its controller wrote it down.

    Raises:
        MissingArtifactError: if the store has no study of it.
    """
    for study, about in _studies(store):
        if study == found.study:
            request: dict[str, Any] = about["request"]
            return request
    raise MissingArtifactError(f"{found.short}: {store.address} holds no study of it, from which it could go on.")


def refreshed(store: ArtifactStore, found: Found) -> Found:
    """The experiment as it is now."""
    about = next(about for study, about in _studies(store) if study == found.study)
    return _under_way(store, found.study, about)


def _published(store: ArtifactStore, name: str) -> list[Reference]:
    return list(store.references(KIND, name or None))


def _made(store: ArtifactStore, reference: Reference) -> float:
    """When an artifact was written, by the store's clock."""
    found = store.objects.stat(f"{reference}/manifest.json")
    return found.modified if found else 0.0


def _details(store: ArtifactStore) -> Any:
    return lambda reference: store.manifest(reference).details


def _read(store: ArtifactStore, reference: Reference) -> Found:
    if reference.kind != KIND:
        raise ConfigurationError(f"{reference.short}: expected an experiment, found one of {reference.kind}.")
    about, trials = store.read_json(reference, "experiment.json"), store.read_json(reference, "trials.json")
    study = str(store.manifest(reference).details.get("study", ""))
    return Found(reference.name, study, reference, ENDED, Shown(reference.name, about, trials))


def _studies(store: ArtifactStore) -> Iterator[tuple[str, dict[str, Any]]]:
    from gatehouse.components.tuning.journal import studies

    return studies(store.objects)


def _under_way(store: ArtifactStore, study: str, about: dict[str, Any]) -> Found:
    from gatehouse.components.tuning.description import described
    from gatehouse.components.tuning.opening import read_study
    from gatehouse.components.tuning.spec import ExperimentSpec

    spec = ExperimentSpec.model_validate(about["request"]["spec"])
    trials, state = read_study(store.objects, study)
    running = sum(not one.ended for one in trials)
    told = {
        RUNNING: f"Under way: {running} {'trial runs' if running == 1 else 'trials run'}",
        INTERRUPTED: f"Interrupted with {running} {'trial' if running == 1 else 'trials'} under way",
        ENDED: "Its trials have ended, and they are not published yet; resume does it if its controller is gone",
    }
    body = described(spec, int(about["steps"])) | {"ended": ""}
    shown = Shown(about["name"], body, [one.to_json() for one in trials], told[state])
    return Found(about["name"], study, None, state, shown)
