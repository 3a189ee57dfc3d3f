"""How many units of live traffic show that a candidate is worse than the champion by no more than a margin.

As for the test rows, an equal candidate keeps the margin with a chance of 80 % (Julious 2004, section 4). A unit is
what the evaluation drew: a row, a group, a day. Standard errors shrink with the root of the number of units, which is
exact for a mean and an approximation for other metrics.
"""

import math
from dataclasses import replace

from gatehouse.evaluation.gate import Comparison


def paired_units(comparison: Comparison, confidence: float, margin: float) -> int | None:
    """Units that both models score, as a shadow does; None where no number shows the margin."""
    if not comparison.units or margin <= 0 or not math.isfinite(comparison.standard_error):
        return None
    return math.ceil(comparison.units * (comparison.smallest_shown(confidence) / margin) ** 2)


def parallel_units(
    comparison: Comparison, errors: tuple[float, float], share: float, confidence: float, margin: float
) -> int | None:
    """Units of both models together, each scored by one of them, as in an A/B test; None where no number shows it.

    Args:
        share: Of the units that the candidate gets, above 0 and below 1.
    """
    ours, theirs = errors
    apart = math.sqrt(ours**2 / share + theirs**2 / (1 - share))
    return paired_units(replace(comparison, standard_error=apart), confidence, margin)
