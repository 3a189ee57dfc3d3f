"""Decides whether a new model is due, and whether it may be ordered now. All functions are pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from gatehouse.monitoring.orders import Order
from gatehouse.monitoring.spec import RetrainSpec
from gatehouse.store.canonical import digest_of

_DAY = 86_400.0


def due(spec: RetrainSpec, told: Mapping[str, Any], age_days: float) -> tuple[str, tuple[str, ...]]:
    """What asks for a new model, in one or more words, and why; empty if nothing does.

    Args:
        spec: What may ask for a new model.
        told: The content of the drift report.
        age_days: Days since the champion was registered.
    """
    found = {name: tuple(told["reasons"]) for name in told["triggers"] if name in spec.on}
    if "schedule" in spec.on and age_days >= spec.every_days:
        found["schedule"] = (f"the champion is {age_days:.0f} days old; a new one is due after {spec.every_days}",)
    rows = int(told["facts"].get("labelled rows after the last train row", 0))
    if "volume" in spec.on and rows >= spec.new_rows:
        found["volume"] = (f"{rows:,} labelled rows are new; a new model is due from {spec.new_rows:,}",)
    return "+".join(sorted(found)), tuple(dict.fromkeys(why for each in found.values() for why in each))


def cause_of(asks: str, told: Mapping[str, Any], reference: str, champion: str, period: int) -> str:
    """Digest of a cause: what asks, the reference, the window that was monitored, and the champion.

    Args:
        asks: The first result of `due`.
        told: The content of the drift report.
        reference: Training set of the champion.
        champion: The champion.
        period: Number of the schedule's period.
    """
    window = [told["facts"].get("decided from", ""), told["facts"].get("to", "")]
    if asks == "schedule":
        window = [str(period)]
    return digest_of({"check": asks, "reference": reference, "window": window, "champion": champion})


def held_back(spec: RetrainSpec, before: Sequence[Order], now: float) -> str:
    """Why no order may be given now; empty if one may be given.

    Args:
        spec: The cool-down and the budget.
        before: All earlier orders.
        now: Seconds since 1970.
    """
    last = max((each.at for each in before), default=float("-inf"))
    if now - last < spec.cool_down_days * _DAY:
        return (
            f"the last order was given {(now - last) / _DAY:.1f} days ago; another may follow after "
            f"{spec.cool_down_days:g} (`retrain.cool_down_days`)"
        )
    recent = sum(now - each.at < spec.budget_days * _DAY for each in before)
    if recent >= spec.budget:
        return (
            f"{recent} orders were given in the last {spec.budget_days} days; the budget is {spec.budget} "
            "(`retrain.budget`)"
        )
    return ""
