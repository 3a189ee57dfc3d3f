"""The price of a machine: it is in the key of an experiment where `budget.cost` ends the search by it."""

import time

import pytest

from gatehouse.launchers.launcher import stop_here, stopped
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.provenance import PRICES
from gatehouse.training.stage import TrainRequest, TrainResult
from gatehouse.tuning import controller
from gatehouse.tuning.spec import Budget
from gatehouse.tuning.stage import study_key, tune
from tests.tuning.test_stage import SPACE, _request, _simulate, _simulated, _trials


def test_a_price_is_in_the_key_where_it_ends_the_search_and_nowhere_else(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited = _request(store, SPACE.model_copy(update={"budget": Budget(cost=1.0)}))
    keys = []
    for price in ("0.02", "0.2"):
        monkeypatch.setenv(PRICES, f'{{"per_hour": {{"default": {price}}}}}')
        priced = limited.priced()
        assert study_key(priced) == study_key(limited), "another price is another experiment"
        assert _request(store).priced() == _request(store)
        keys.append(tune.key(priced))
    assert keys[0] != keys[1]


def test_an_experiment_ends_by_the_price_of_its_request(store: ArtifactStore, monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[TrainRequest] = []
    answer = _simulated(requests)

    def train(request: TrainRequest, store: ArtifactStore) -> TrainResult:
        result = answer(request, store)
        while len(requests) == 2 and not stop_here().asked():
            time.sleep(0.001)
        if len(requests) == 2:
            raise stopped()
        return result

    _simulate(monkeypatch, train)
    monkeypatch.setattr(controller, "LOOK_SECONDS", 0.01)
    monkeypatch.setenv(PRICES, '{"per_hour": {"default": 3600.0}}')
    request = _request(store, SPACE.model_copy(update={"budget": Budget(cost=1.0)})).priced()
    monkeypatch.setenv(PRICES, '{"per_hour": {"default": 0.0}}')
    first = tune(request, store)
    assert (first.ended, len(_trials(store, first.experiment))) == ("cost", 2)
    cheaper = tune(request.priced(), store)
    assert (cheaper.ended, len(_trials(store, cheaper.experiment))) == ("max_trial_count", 3)
    assert tune(request, store) == first
