"""The tune stage: experiments that repeat, go on after an interruption, and survive trials that fail."""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from gatehouse.data.splitting.parts import divided_set
from gatehouse.launchers.launcher import TrainingFailedError, stop_here, stopped, timed_out
from gatehouse.store.canonical import canonical_json
from gatehouse.store.run import RUN_ID, events
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.metrics_file import Point
from gatehouse.tracking.provenance import PRICES
from gatehouse.tracking.sending import FOLLOWER, RUN_TITLE
from gatehouse.training.spec import NetworkTraining, beginning, changed, settings_of, train_spec
from gatehouse.training.stage import TrainRequest, TrainResult, job_key
from gatehouse.tuning import controller, training_trials
from gatehouse.tuning.configuration import infeasible
from gatehouse.tuning.controller import ExperimentFailedError
from gatehouse.tuning.journal import ask_to_stop
from gatehouse.tuning.report import markdown, page
from gatehouse.tuning.spec import Budget, ExperimentSpec
from gatehouse.tuning.stage import TuneRequest, hourly_price, study_key, tune
from tests.training.specs import network
from tests.training.synthetic import fitted_data, publish_split

SPACE = ExperimentSpec.model_validate(
    {
        "max_trial_count": 3,
        "trial_settings": {"stopping.epochs": 1, "data.train_fraction": 0.5, "parallelism.processes": 1},
        "parameters": [
            {"name": "optimizer.learning_rate", "type": "double", "min": 1e-4, "max": 1e-1, "log": True},
            {"name": "model.hidden", "type": "categorical", "choices": [[16, 8], [8]]},
            {"name": "model.embedding_size", "type": "int", "min": 2, "max": 4},
        ],
    }
)
BASE = network(epochs=5, processes=2, batch_size=128)


def _request(store: ArtifactStore, space: ExperimentSpec = SPACE) -> TuneRequest:
    split, fitted = fitted_data(store)
    return TuneRequest(
        split=split,
        transformation=fitted,
        base=BASE,
        spec=space,
        model_name="flights",
        seed=11,
    )


@pytest.mark.parametrize(
    ("training", "metric"),
    [
        ({"loss": {"kind": "mse"}}, "mse"),
        ({"loss": {"kind": "pairwise"}, "stopping": {"metric": "ndcg"}}, "ndcg"),
        ({"model": {"architecture": "xgboost"}, "loss": {"kind": "binary"}}, "log_loss"),
    ],
)
def test_an_experiment_without_objective_aims_at_the_metric_of_the_training(
    training: dict[str, Any], metric: str
) -> None:
    data = dict.fromkeys(("split", "transformation"), "") | {"model_name": "flights", "seed": 1}
    rate = {"name": "optimizer.learning_rate", "type": "double", "min": 0.01, "max": 0.1}
    implicit, explicit = (
        TuneRequest.model_validate(data | {"base": training, "spec": {"parameters": [rate]} | objective})
        for objective in ({}, {"objective": metric})
    )
    assert implicit == explicit and tune.key(implicit) == tune.key(explicit)
    assert not infeasible(ExperimentSpec.model_validate({"parameters": [rate]}), implicit.base)


def _simulated(
    requests: list[TrainRequest],
    fails: Callable[[int], bool] = lambda _: False,
    words: str = "Training failed: the gradient is not finite.",
) -> Callable[[TrainRequest, ArtifactStore], TrainResult]:
    """A stand-in for training whose log loss is best at a learning rate of 0.01; `fails` says by call which fail."""

    def train(request: TrainRequest, store: ArtifactStore) -> TrainResult:
        requests.append(request)
        if fails(len(requests) - 1):
            raise TrainingFailedError(f"{words}\nlog of process 4711 in /tmp/x1y2", repeats=True)
        distance = abs(request.spec.optimizer.learning_rate - 0.01)
        metrics = {"log_loss": 0.5 + distance, "roc_auc": 0.7 - distance}
        history = canonical_json([{"epoch": 0} | metrics])
        files = {"spec.json": request.spec.model_dump_json(), "history.json": history}
        model = store.publish("models", request.model_name, files)
        return TrainResult(model=str(model), best_epoch=0, metrics=metrics)

    return train


def _simulate(monkeypatch: pytest.MonkeyPatch, train: Callable[[TrainRequest, ArtifactStore], TrainResult]) -> None:
    """Have trials trained by a stand-in, whose models score no rows."""
    monkeypatch.setattr(training_trials, "train", train)


def _trials(store: ArtifactStore, reference: str) -> list[dict[str, Any]]:
    trials: list[dict[str, Any]] = store.read_json(reference, "trials.json")
    return trials


def test_trials_are_real_training_runs_and_come_from_the_memo_when_an_experiment_goes_on(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = SPACE.model_copy(update={"max_trial_count": 2})
    request = _request(store, two)
    first = tune.function(request, store)
    trials = _trials(store, first.experiment)
    assert len(trials) == 2
    for trial in trials:
        manifest = store.manifest(trial["model"])
        rate = trial["parameters"]["optimizer.learning_rate"]
        assert manifest.configuration["optimizer"] == {"learning_rate": rate}
        assert manifest.configuration["stopping"] == {"epochs": 1}
        assert trial["values"] == {"log_loss": trial["metrics"]["log_loss"]}
    monkeypatch.setattr("gatehouse.launchers.local._WRAPPER", "this")
    assert tune.function(request, store) == first, "a trial was trained a second time"


def test_the_best_spec_is_the_base_with_the_best_parameters_on_the_full_budget(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[TrainRequest] = []
    _simulate(monkeypatch, _simulated(requests))
    result = tune.function(_request(store), store)
    trials = _trials(store, result.experiment)
    winner = min(trials, key=lambda trial: trial["values"]["log_loss"])
    (key,) = store.objects.list(f"measurements/{result.experiment}")
    measured = json.loads(store.objects.get_bytes(key))
    assert measured["stage"] == "tune" and 0 <= time.time() - measured["began"] - measured["seconds"] < 60
    best = json.loads(result.best)
    assert train_spec(best) == changed(BASE, winner["parameters"] | {"seed": 11})
    assert not {"checkpoints", "operation"} & best.keys() and best["stopping"]["epochs"] == 5, (
        "it holds what is not its own"
    )
    tried = [request.spec for request in requests]
    assert {
        (request.stopping.epochs, request.data.train_fraction, request.parallelism.processes) for request in tried
    } == {(1, 0.5, 1)}
    assert {request.seed for request in tried} == {11}
    sentence = f"Trial {winner['number']} of 3 is best"
    assert sentence in page(store, result.experiment)
    lines = markdown(store, result.experiment).splitlines()
    assert any(sentence in line for line in lines) and lines[-3].startswith(f"| {winner['number']} | ")
    about = store.read_json(result.experiment, "experiment.json")
    assert (about["ended"], about["counts"]) == ("max_trial_count", {"succeeded": 3})
    assert store.manifest(result.experiment).details["trials"] == 3


def test_a_population_ends_in_the_schedule_of_its_best_member_and_keeps_no_checkpoint(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[TrainRequest] = []
    simulated = _simulated(requests)

    def train(request: TrainRequest, store: ArtifactStore) -> TrainResult:
        store.scratch(f"kept-{job_key(request)}")
        return simulated(request, store)

    _simulate(monkeypatch, train)
    algorithm = {"name": "population", "population_size": 2, "interval": 2, "quantile": 0.5}
    body = SPACE.model_dump() | {"algorithm": algorithm, "max_trial_count": 9, "trial_settings": {}}
    result = tune.function(_request(store, ExperimentSpec.model_validate(body)), store)
    assert store.read_json(result.experiment, "experiment.json")["ended"] == "generations"
    assert [(entry.spec.stopping.epochs, entry.segment) for entry in requests] == [(2, 2)] * 2 + [(4, 2)] * 2 + [
        (5, 2)
    ] * 2
    trials = _trials(store, result.experiment)
    assert any(trial["parent"] not in (None, trial["number"] - 2) for trial in trials)
    number = store.manifest(result.experiment).details["best_trial"]
    best, winner = train_spec(json.loads(result.best)), requests[number].spec
    assert isinstance(best, NetworkTraining) and best.stopping.epochs == 5
    assert settings_of(beginning(best, winner.stopping.epochs)) == settings_of(winner)
    assert not list((store.local_folder / "scratch").glob("kept-*"))


def test_an_experiment_goes_on_with_more_trials_and_removes_what_failed_trials_left(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[TrainRequest] = []
    _simulate(monkeypatch, _simulated(requests, fails=lambda call: call == 1))
    first = tune.function(_request(store), store)
    (measured,) = store.measurements(first.experiment, "tune")
    left = store.scratch(f"train-{measured['jobs']['1']}")  # As a checkpoint would be there.
    more = _request(store, SPACE.model_copy(update={"max_trial_count": 5, "parallel_trial_count": 2}))
    result = tune.function(more, store)
    assert len(requests) == 5, "trials were trained again"
    assert _trials(store, result.experiment)[:3] == _trials(store, first.experiment)
    assert not left.exists()
    other = more.model_copy(update={"seed": 12})
    assert study_key(more) == study_key(_request(store)) != study_key(other)


def test_a_trial_that_is_stopped_early_keeps_its_checkpoint_for_whoever_tries_the_same(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = []

    def train(request: TrainRequest, store: ArtifactStore) -> TrainResult:
        kept.append(store.scratch(f"train-{job_key(request)}"))
        if len(kept) == 1:
            return _simulated([])(request, store)
        follower = FOLLOWER.get()
        assert follower is not None and RUN_TITLE.get() == "trial 1"
        for epoch in range(3):
            follower([Point("log_loss", 0.5 + epoch, epoch, 0.0)])
        while not stop_here().requested():
            time.sleep(0.001)
        raise stopped()

    _simulate(monkeypatch, train)
    changes = {"early_stopping": {"name": "PatientPruner", "patience": 1}, "trial_settings": {}, "max_trial_count": 2}
    space = ExperimentSpec.model_validate(SPACE.model_dump() | changes)
    result = tune.function(_request(store, space), store)
    assert [trial["state"] for trial in _trials(store, result.experiment)] == ["succeeded", "early_stopped"]
    assert kept[1].exists()


def test_an_experiment_that_somebody_stopped_goes_on_when_it_is_asked_for_again(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    request, requests = _request(store), []
    answer = _simulated(requests)

    def train(train_request: TrainRequest, where: ArtifactStore) -> TrainResult:
        result = answer(train_request, where)
        if len(requests) == 2:
            ask_to_stop(where.objects, study_key(request))
        return result

    _simulate(monkeypatch, train)
    monkeypatch.setattr(controller, "LOOK_SECONDS", 0.0)
    first = tune(request, store)
    assert (first.ended, len(_trials(store, first.experiment))) == ("stopped", 2)
    second = tune(request, store)
    assert (second.ended, len(_trials(store, second.experiment)), len(requests)) == ("max_trial_count", 3, 3)
    assert tune(request, store) == second and len(requests) == 3


def test_a_trial_that_took_too_long_is_tried_again_by_the_next_run(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(RUN_ID, "run-1")
    requests: list[TrainRequest] = []
    answer = _simulated(requests)

    def train(request: TrainRequest, where: ArtifactStore) -> TrainResult:
        if len(requests) == 1 and request.spec.operation.timeout_minutes == 1:
            requests.append(request)
            where.scratch(f"train-{job_key(request)}")  # As its checkpoint would be there.
            raise timed_out(1, "epoch 3")
        return answer(request, where)

    _simulate(monkeypatch, train)
    request = _request(store)
    short = request.model_copy(update={"base": changed(BASE, {"operation.timeout_minutes": 1})})
    assert tune.key(short) == tune.key(request)
    first = tune(short, store)
    reported = "provisional: 1 trial failed for a reason outside of the search (TrainingTimeoutError), and the next run"
    assert reported in first.summary and first.provisional
    assert reported in "".join(entry.body["message"] for _, entry in events(store, "run-1") if entry.event == "warned")
    assert store.read_json(first.experiment, "experiment.json")["provisional"] == [1]
    assert "The result is provisional: 1 trial failed" in page(store, first.experiment)
    kept = store.scratch(f"train-{job_key(requests[1])}")
    assert kept.exists() and len(requests) == 3
    second = tune(request, store)
    assert [trial["state"] for trial in _trials(store, second.experiment)] == ["succeeded"] * 3
    assert requests[3].spec.optimizer == requests[1].spec.optimizer and len(requests) == 4, "others were trained again"
    assert not second.provisional and "provisional" not in second.summary
    assert tune(short, store) == second and len(requests) == 4


def test_data_that_no_trial_can_train_on_fails_the_experiment_by_name(store: ArtifactStore) -> None:
    request = _request(store)
    split = publish_split(store, divided_set(store, request.split), validation=range(1))
    with pytest.raises(ExperimentFailedError, match=r"(?s)None of 3 trials succeeded .*Part validation of the split"):
        tune.function(request.model_copy(update={"split": split}), store)


def test_a_price_is_in_the_key_where_it_ends_the_search_and_nowhere_else(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited = _request(store, SPACE.model_copy(update={"budget": Budget(cost=1.0)}))
    keys = []
    for price in ("0.02", "0.2"):
        monkeypatch.setenv(PRICES, f'{{"per_hour": {{"default": {price}}}}}')
        priced = limited.model_copy(update={"price": hourly_price(limited.spec.model_dump())})
        assert study_key(priced) == study_key(limited), "another price is another experiment"
        assert priced.price and hourly_price(SPACE.model_dump()) is None
        keys.append(tune.key(priced))
    assert keys[0] != keys[1]
