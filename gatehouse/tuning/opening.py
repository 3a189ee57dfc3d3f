"""Opens the study of an experiment: exclusively for its controller, or for reading."""

import gc
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import optuna
from optuna.storages import JournalStorage

from gatehouse.errors import ConfigurationError
from gatehouse.store.objects.base import ObjectStore
from gatehouse.store.store import ArtifactStore
from gatehouse.tuning.access.journal import StoreJournal
from gatehouse.tuning.access.lease import ControllerLease, is_controlled
from gatehouse.tuning.access.storage import database
from gatehouse.tuning.spec import ExperimentSpec
from gatehouse.tuning.study import ExperimentStudy, trials_of
from gatehouse.tuning.suggestion import outside
from gatehouse.tuning.trial import Trial

logger = logging.getLogger(__name__)


@contextmanager
def opened_study(
    objects: ObjectStore,
    key: str,
    spec: ExperimentSpec,
    seed: int,
    steps: int,
    warm: tuple[dict[str, Any], ...] = (),
) -> Iterator[ExperimentStudy]:
    """Open the study of an experiment for its controller, and continue what an earlier controller left.

    Args:
        objects: The store with the lease, and with the journal if there is no database.
        key: Key of the study.
        spec: The experiment. With `resume_policy: never` nothing is kept.
        seed: Seed of its suggestions.
        steps: Steps of a whole trial.
        warm: Configurations to try first.

    Raises:
        SecondControllerError: if the experiment has a controller.
    """
    with ControllerLease(objects, key) as lease:
        if spec.resume_policy == "never":
            yield ExperimentStudy(spec, seed, steps, key, flush=lease.require, warm=warm)
        elif (stored := database()) is not None:
            yield ExperimentStudy(spec, seed, steps, key, stored, lease.require, warm)
        else:
            with _uncollected():
                storage = JournalStorage(journal := StoreJournal(objects, key))

            def flush() -> None:
                lease.require()
                journal.flush()

            yield ExperimentStudy(spec, seed, steps, key, storage, flush, warm)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Pause Python's garbage collector, which otherwise takes 30 % of the time of reading a long journal."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def read_study(objects: ObjectStore, key: str) -> tuple[list[Trial], Literal["running", "interrupted", "ended"]]:
    """The present trials of an experiment, and its state; without a lease."""
    with _uncollected():
        storage: optuna.storages.BaseStorage = database() or JournalStorage(StoreJournal(objects, key))
        trials = trials_of(storage, key)
    if is_controlled(objects, key):
        return trials, "running"
    return trials, "ended" if all(trial.ended for trial in trials) else "interrupted"


def best_configurations(store: ArtifactStore, spec: ExperimentSpec) -> tuple[dict[str, Any], ...]:
    """The best configurations of the experiments of `warm_start`: for each its best trial, then the rest of its front.

    A configuration with a value outside the present space is left out, with a warning.

    Raises:
        ConfigurationError: if the store does not hold one of the experiments.
    """
    found: list[dict[str, Any]] = []
    if missing := [each for each in spec.warm_start if not store.exists(each)]:
        raise ConfigurationError(
            f"tuning.warm_start: expected experiments that {store.address} holds, found none of the name "
            f"{', '.join(missing)}; copy a reference from gatehouse tuning list, or remove it"
        )
    for reference in spec.warm_start:
        about, trials = store.read_json(reference, "experiment.json"), store.read_json(reference, "trials.json")
        by_number = {trial["number"]: trial["parameters"] for trial in trials}
        for number in dict.fromkeys([about["best_trial"], *about.get("front", [])]):
            chosen = by_number[number]
            if wrong := outside(spec, chosen):
                logger.warning("warm_start: trial %d of %s is left out: %s", number, reference, "; ".join(wrong))
            elif chosen not in found:
                found.append(chosen)
    return tuple(found)
