"""Comparisons that stay valid however often one looks: the interval of a mean, and a test of the arms' shares."""

import math
from collections.abc import Iterable

from gatehouse.metrics.lazy_numpy import np
from gatehouse.metrics.metric import Array

CONCENTRATION = 1000.0
"""Weight of the prior of `ratio_evidence` around the expected share, in units: shares that are wrong by a few percent
of one are found soonest."""


def half_width(deviation: Array | float, number: Array | int, alpha: float, tuned_at: float) -> Array:
    """Half of the width of an asymptotic confidence sequence of a mean; it holds at all numbers together.

    With probability 1 - `alpha`, as the first number grows, no mean of `number` independent units ever differs from the
    true one by more. Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas (2024), Time-uniform central limit theory and
    asymptotic confidence sequences, Annals of Statistics 52(6), Theorem 2.2; the parameter rho as in their section 2.

    Args:
        deviation: Standard deviation of the units so far.
        number: Number of units so far; infinite width for fewer than two.
        tuned_at: The number of units at which the interval is narrowest.
    """
    deviation, number = np.asarray(deviation, np.float64), np.maximum(np.asarray(number, np.float64), 1.0)
    squared = (-2 * math.log(alpha) + math.log(1 - 2 * math.log(alpha))) / tuned_at
    grown = number * squared + 1
    width = deviation * np.sqrt(grown / (number**2 * squared) * np.log(grown / alpha**2))
    return np.asarray(np.where(number < 2, np.inf, width))


def ratio_evidence(counts: Iterable[tuple[float, int, int]]) -> float:
    """Logarithm of the evidence that units are not divided by their shares: an e-process, to be looked at any time.

    Under the right shares it ever reaches log(1 / alpha) with probability alpha at most. It mixes over the share by a
    beta distribution around the expected one: Lindon and Malek (2022), Anytime-valid inference for multinomial count
    data, NeurIPS. Units of several shares multiply their evidence.

    Args:
        counts: By share: the share, the units in the arm, and all units, each unit once.
    """
    return sum(_evidence(share, inside, units) for share, inside, units in counts)


def _evidence(share: float, inside: int, units: int) -> float:
    a, b = CONCENTRATION * share, CONCENTRATION * (1 - share)
    outside = units - inside
    mixed = math.lgamma(a + inside) + math.lgamma(b + outside) - math.lgamma(a + b + units)
    prior = math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
    return mixed - prior - inside * math.log(share) - outside * math.log1p(-share)
