"""Guessing: the candidate is shown to be better than a guess."""

from collections.abc import Iterator

from pydantic import Field

from gatehouse.evaluation.gate import Evidence, Rule, family, figure, side_of
from gatehouse.store.identity import Spec


class Guessing(Spec):
    """The comparison with the candidate's own predictions of other rows."""

    better_than_guessing: float | None = Field(
        0.95,
        gt=0.5,
        lt=1.0,
        description="Confidence with which the candidate must be shown to be better than a guess, which is its own "
        "predictions dealt to other rows at random; null if that is not asked. If the test rows cannot show it, the "
        "verdict is inconclusive.",
    )


@family(Guessing)
def guessing(policy: Guessing, evidence: Evidence) -> Iterator[Rule]:
    """The candidate is better than its own predictions of other rows, also at its worst bound."""
    comparison, confidence = evidence.guessing, policy.better_than_guessing
    if comparison is None or confidence is None:
        return
    yield Rule(
        f"guessing {comparison.metric}",
        f"better than the {figure(comparison.champion)} of its own predictions of other rows, with {confidence:.0%} "
        "confidence",
        f"{figure(comparison.candidate)}, at worst {side_of(comparison.worst_bound)}{comparison.few_units}",
        comparison.worst_bound < 0 and not comparison.too_few,
        inconclusive=comparison.best_bound < 0 <= comparison.worst_bound or comparison.too_few,
    )
