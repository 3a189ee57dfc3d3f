"""The interval of a calibration error, which knows by how much chance makes the error of a sample larger."""

import math

import numpy as np

from gatehouse.metrics.catalogue.metric import Array

_STEPS = 16
_SEED = 7


def calibration_interval(gaps: Array, drawn: Array, outside: float) -> tuple[float, float]:
    """All true errors under which the error of the rows is none of the smallest or largest, a share `outside` each.

    A test is inverted (Davison and Hinkley 1997, section 5.6; Carpenter 1999): under a true error e the error of a
    sample is that of gaps of size e and of the noise of rates, which draws show. An error of 0 is the test of Brocker
    and Smith (2007), by consistency resampling, so that the interval of a calibrated model begins at 0. How e is
    divided among the gaps is not known, and drawn: where gaps and noise are normal, the true gaps are so around a
    shrunken form of those found (empirical Bayes, Efron and Morris 1973).

    The error of the rows may lie above the interval, as chance enlarges it.

    Args:
        gaps: Distance of probability and rate in each group of rows, times its share of the rows, shape (groups,).
        drawn: The same of each draw of the bootstrap, shape (samples, groups).
        outside: Share, below a half.

    Returns:
        Both ends, from 0 to 1.
    """
    noise, found = drawn - gaps, float(np.abs(gaps).sum())
    spread = noise.var(axis=0)
    signal = max(float(np.mean(gaps**2 - spread)), 0.0)
    kept = signal / (signal + float(np.mean(spread)) or 1.0)
    normal = np.random.default_rng(_SEED).normal(size=noise.shape)
    shapes = kept * gaps + np.sqrt(kept * spread) * normal
    sizes = np.abs(shapes).sum(axis=1, keepdims=True)
    shapes = np.divide(shapes, sizes, out=np.full(shapes.shape, 1 / len(gaps)), where=sizes > 0)

    def true_error(share: float) -> float:
        """The least true error of which a share of samples at most has an error below that of the rows."""
        low, high = 0.0, 1.0
        for _ in range(_STEPS):
            middle = (low + high) / 2
            of_samples = np.abs(middle * shapes + noise).sum(axis=1)
            below = np.quantile(of_samples, share, method="weibull") < found
            low, high = (middle, high) if below else (low, middle)
        return 0.0 if math.isclose(high, 0.5**_STEPS) else high

    return true_error(1 - outside), true_error(outside)
