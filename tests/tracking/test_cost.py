"""What a run costs, by the price table."""

import pytest

from gatehouse.tracking.provenance import Prices, cost_here

PRICES = Prices(per_hour={"default": 0.5, "gpu": 10.0})


def test_cost_is_price_by_the_hour_times_machines_and_time() -> None:
    assert PRICES.cost(1800, "gpu", machines=4) == pytest.approx(20.0)
    assert PRICES.cost(3600, "unheard of") == pytest.approx(0.5)


def test_without_a_price_there_is_no_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Prices(per_hour={"gpu": 10.0}).cost(3600, "cpu") is None
    monkeypatch.delenv("GATEHOUSE_PRICES", raising=False)
    assert cost_here(3600) == {}


def test_the_environment_says_prices_and_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEHOUSE_PRICES", PRICES.model_dump_json())
    monkeypatch.setenv("GATEHOUSE_MACHINE", "gpu")
    assert cost_here(360) == {"cost": pytest.approx(1.0)}
    assert cost_here(360, "gpu", 4) == {"cost": pytest.approx(4.0)}, "four nodes of a cluster"


@pytest.mark.parametrize("wrong", [{"currency": "dollars"}, {"per_hour": {"a": -1}}, {"per_hour": {"a": float("inf")}}])
def test_a_price_table_that_makes_no_sense_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="validation error"):
        Prices.model_validate(wrong)
