"""The component of the tune stage: which experiment its parameters and the price of its machine ask for."""

from types import SimpleNamespace

import pytest

from gatehouse.components.artifacts.canonical import canonical_json
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.tracking.cost import PRICES
from gatehouse.components.training.spec import settings_of
from gatehouse.components.tuning import stage
from gatehouse.pipelines.interfaces import component_of
from tests.components.training.specs import network
from tests.components.tuning.stand_in import experiment


class Asked(Exception):
    """Stands for the run of the stage."""


@pytest.mark.parametrize(("budget", "price"), [({"cost": 1.0}, 1.5), ({"minutes": 1.0}, None)])
def test_the_price_of_the_machine_is_asked_for_where_it_ends_the_search(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch, budget: dict[str, float], price: float | None
) -> None:
    asked: list[stage.TuneRequest] = []

    def tune(request: stage.TuneRequest, *_: object, **__: object) -> None:
        asked.append(request)
        raise Asked

    monkeypatch.setenv(PRICES, '{"per_hour": {"default": 1.5}}')
    monkeypatch.setattr(stage, "tune", tune)
    page = SimpleNamespace(metadata={})
    with pytest.raises(Asked):
        component_of("tune").python_func(
            store=store.address,
            training_set="training-sets/flights",
            split="splits/flights",
            transformation="",
            base=canonical_json(settings_of(network())),
            spec=experiment(budget=budget).model_dump_json(),
            model_name="flights",
            seed=1,
            code="",
            force="",
            report=page,
            trials=page,
        )
    assert asked[0].price == price
