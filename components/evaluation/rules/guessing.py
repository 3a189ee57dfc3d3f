"""Guessing: the candidate is shown to know more than a model that uses no feature."""

from collections.abc import Iterator

from pydantic import Field

from gatehouse.components.artifacts.identity import Spec
from gatehouse.components.evaluation.gate import LEAST_UNITS, Evidence, Rule, family, figure, side_of
from gatehouse.components.metrics.catalogue.found import metric_named


def guessed_in(compared_in: str | None, objective: str) -> str:
    """The metric that says whether a model knows anything: the one of the comparison if it can, else the objective."""
    return compared_in if compared_in and metric_named(compared_in).tells_skill else objective


class Guessing(Spec):
    """The comparison with a model that says the same of every row."""

    better_than_guessing: float | None = Field(
        0.95,
        gt=0.5,
        lt=1.0,
        description="Confidence with which the candidate must be shown to be better than a constant model, which uses "
        "no feature; null if that is not asked. If the test rows cannot show it, the verdict is inconclusive.",
    )


@family(Guessing)
def guessing(policy: Guessing, evidence: Evidence) -> Iterator[Rule]:
    """That the candidate is better than the constant model, at the bound that is worst for it too."""
    found, confidence = evidence.guessing, policy.better_than_guessing
    if found is None or confidence is None:
        return
    few = f"; bounds of {found.units} units mean nothing, at least {LEAST_UNITS} are needed" if found.too_few else ""
    yield Rule(
        f"guessing {found.metric}",
        f"better than the constant model's {figure(found.champion)} with {confidence:.0%} confidence",
        f"{figure(found.candidate)}, at worst {side_of(found.worst_bound)}{few}",
        found.worst_bound < 0 and not found.too_few,
        inconclusive=found.best_bound < 0 <= found.worst_bound or found.too_few,
    )
