"""Prices of machines per hour, and the cost of runs."""

import os
from typing import Annotated

from pydantic import Field

from gatehouse.store.identity import Spec, operational
from gatehouse.store.run import MACHINE

PRICES = "GATEHOUSE_PRICES"
_HOUR = 3600.0


class Prices(Spec):
    """Prices per hour by type of machine, for the cost of runs, and for an experiment with `tuning.budget.cost`.

    They are in no key, with one exception: the price of the machine is in the key of `tune` where `budget.cost` is set,
    because it decides when the search ends.
    """

    currency: str = operational("USD", pattern="^[A-Z]{3}$", description="ISO 4217 code.")
    per_hour: dict[str, Annotated[float, Field(ge=0.0, allow_inf_nan=False)]] = operational(
        {},
        description="Price per hour by type of machine, as GATEHOUSE_MACHINE names it; `default` for every other type.",
    )

    def cost(self, seconds: float, machine: str = "", machines: int = 1) -> float | None:
        """The cost of `machines` machines of a type for `seconds`; None if no price is known."""
        price = self.per_hour.get(machine, self.per_hour.get("default"))
        return None if price is None else price * machines * seconds / _HOUR


def prices_here() -> Prices:
    """The price table of the environment (`GATEHOUSE_PRICES`, as JSON); an empty table if it is not set.

    Raises:
        ValueError: if it is not a price table.
    """
    text = os.environ.get(PRICES, "")
    return Prices.model_validate_json(text) if text else Prices()


def cost_here(seconds: float, machine: str = "", machines: int = 1) -> dict[str, float]:
    """The metric `cost` of a run of this duration, by default on this machine; empty if no price is known."""
    cost = prices_here().cost(seconds, machine or os.environ.get(MACHINE, ""), machines)
    return {} if cost is None else {"cost": cost}
