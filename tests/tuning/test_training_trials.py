"""Trials as training runs: what they tell, how they are stopped, and that no epoch is trained twice."""

import json
import queue
import threading
from typing import Any

import pytest

from gatehouse.errors import MissingArtifactError, OutOfMemoryError, RepeatedError, StoreError
from gatehouse.launchers.launcher import (
    EvictedError,
    ImagePullError,
    TrainingFailedError,
    TrainingStoppedError,
    TrainingTimeoutError,
    stop_here,
    stopped,
)
from gatehouse.launchers.ranks import FAULT
from gatehouse.store.run import RUN_ID, events
from gatehouse.store.store import ArtifactStore
from gatehouse.training.stage import TrainRequest, TrainResult
from gatehouse.training.transformation import FeatureError
from gatehouse.tuning import training_trials
from gatehouse.tuning.runner import FATAL, TEMPORARY, Ended, Event, Reported, is_outside
from gatehouse.tuning.spec import ExperimentSpec
from gatehouse.tuning.training_trials import TrainingTrials, measured
from tests.conftest import Once
from tests.training.specs import network
from tests.training.synthetic import fitted_data
from tests.training.trained import train_once

MESSAGE = "Training failed: the gradient is not finite."
RATE = "optimizer.learning_rate"
SPEC = ExperimentSpec.model_validate(
    {
        "objective": "log_loss",
        "trial_settings": {"stopping.epochs": 3},
        "parameters": [{"name": RATE, "type": "double", "min": 0.001, "max": 0.1}],
    }
)
BASE = network(hidden=(8,), epochs=9, batch_size=128)


def _trials(store: ArtifactStore, spec: ExperimentSpec = SPEC) -> TrainingTrials:
    return TrainingTrials(
        store, dict(zip(("split", "transformation"), fitted_data(store), strict=True)), "flights", BASE, spec, 11
    )


def _until_ended(events: "queue.SimpleQueue[Event]", trials: int) -> list[Event]:
    result: list[Event] = []
    while sum(not isinstance(event, Reported) for event in result) < trials:
        result.append(events.get(timeout=120))
    return result


def test_a_stopped_trial_leaves_its_epochs_to_the_next_of_its_configuration(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FAULT, "await:1")  # The job waits there to be stopped.
    monkeypatch.setenv(RUN_ID, "run-1")
    outcome: queue.SimpleQueue[Event] = queue.SimpleQueue()
    with _trials(store) as trials:
        first = trials.start(0, {RATE: 0.01}, outcome.put)
        before = [outcome.get(timeout=120), outcome.get(timeout=120)]
        trials.start(1, {RATE: 0.01}, outcome.put)
        first.stop()
        after = _until_ended(outcome, 2)
        trials.start(2, {RATE: 0.01}, outcome.put)
        from_memo = _until_ended(outcome, 1)
    assert [(event.number, event.done, event.total) for event in before] == [(0, 1, 3), (0, 2, 3)]
    assert isinstance(after[0], Ended) and isinstance(after[0].error, TrainingStoppedError)
    assert after[0].number == 0 and (trials_job := after[0].job)
    reported = [event for event in after if isinstance(event, Reported)]
    assert [(event.number, event.done) for event in reported] == [(1, 1), (1, 2), (1, 3)]
    assert [event.values for event in reported[:2]] == [event.values for event in before]
    ended = after[-1]
    assert isinstance(ended, Ended) and (ended.number, ended.job, ended.measures) == (1, trials_job, {})
    assert ended.values == min((event.values for event in reported), key=lambda values: values["log_loss"])
    assert store.manifest(ended.model).name == "flights-trial"
    (key,) = store.objects.list(f"measurements/{ended.model}")
    assert any("Resumed from checkpoint" in line for line in json.loads(store.objects.get_bytes(key))["log"])
    assert [event.values for event in from_memo[:-1]] == [event.values for event in reported]
    assert from_memo[-1] == Ended(2, ended.values, {}, ended.model, ended.job)
    kinds = [event.event for _, event in events(store, "run-1") if event.event != "started"]
    assert sorted(kinds) == ["finished", "finished", "hit", "stopped"], "a transformation and one training"


@pytest.mark.parametrize(
    ("error", "temporary", "outside"),
    [
        (TrainingFailedError(MESSAGE, repeats=True), False, False),
        (TrainingFailedError(MESSAGE), False, True),
        (TrainingTimeoutError(MESSAGE), False, True),
        (ImagePullError(MESSAGE), False, True),
        (OutOfMemoryError(MESSAGE), False, True),
        (OSError(MESSAGE), False, True),
        (FeatureError(MESSAGE), False, False),
        (MissingArtifactError(MESSAGE), False, True),
        (ZeroDivisionError(MESSAGE), False, False),
        (EvictedError(MESSAGE), True, True),
        (RepeatedError(MESSAGE, "TrainingFailedError", 1), False, False),
    ],
)
def test_an_error_of_training_says_whether_another_attempt_may_help(
    error: Exception, temporary: bool, outside: bool
) -> None:
    assert (isinstance(error, TEMPORARY), is_outside(error)) == (temporary, outside)
    assert not isinstance(error, FATAL)


def test_the_error_of_a_training_ends_its_trial(store: ArtifactStore, monkeypatch: pytest.MonkeyPatch) -> None:
    error = StoreError(MESSAGE)

    def fail(*_: object) -> TrainResult:
        raise error

    monkeypatch.setattr(training_trials, "train", fail)
    reported: queue.SimpleQueue[Event] = queue.SimpleQueue()
    with _trials(store) as trials:
        trials.start(4, {RATE: 0.01}, reported.put)
        (event,) = _until_ended(reported, 1)
    assert isinstance(event, Ended) and event == Ended(4, job=event.job, error=error) and event.job


def test_an_experiment_that_is_told_to_end_stops_what_runs(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = threading.Semaphore(0)

    def train_for_ever(request: TrainRequest, store: ArtifactStore) -> TrainResult:
        ended = threading.Event()
        with stop_here().ending(ended.set):
            begun.release()
            assert ended.wait(120)
        raise stopped()

    monkeypatch.setattr(training_trials, "train", train_for_ever)
    reported: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def experiment() -> None:
        with _trials(store) as trials:
            for number, rate in enumerate((0.01, 0.02, 0.02)):  # The last waits for the one of its configuration.
                trials.start(number, {RATE: rate}, reported.put)
            assert begun.acquire(timeout=120) and begun.acquire(timeout=120)
            raise SystemExit(143)

    with pytest.raises(SystemExit):
        experiment()
    assert sorted(event.number for event in _until_ended(reported, 3)) == [0, 1, 2]


PARAMETERS = [{"name": "model.dropout", "type": "double", "min": 0, "max": 0.2}]


@pytest.fixture(scope="session")
def trained(once: Once) -> tuple[ArtifactStore, TrainResult]:
    return train_once(once)


def test_what_a_constraint_or_an_objective_asks_for_is_measured_and_nothing_else(
    trained: tuple[ArtifactStore, TrainResult],
) -> None:
    store, result = trained
    split = store.manifest(result.model).derived_from["split"]
    (weights,) = (file for file in store.manifest(result.model).files if file.path == "weights.safetensors")
    size = {"constraints": [{"measure": "size_bytes", "at_most": 1}], "parameters": PARAMETERS}
    assert measured(store, split, result.model, ExperimentSpec.model_validate(size)) == {"size_bytes": weights.bytes}
    latency = {"objective": ["log_loss", "latency_ms"], "algorithm": "RandomSampler", "parameters": PARAMETERS}
    actual = measured(store, split, result.model, ExperimentSpec.model_validate(latency))
    assert set(actual) == {"latency_ms", "latency_p99_ms"} and 0 < actual["latency_ms"] <= actual["latency_p99_ms"]
    assert measured(store, split, result.model, ExperimentSpec.model_validate({"parameters": PARAMETERS})) == {}
