"""Intervals, corrected p-values, and elementary functions with the same bits on every processor.

NumPy's own `exp` and `log` have other last digits with AVX-512. Its elementwise sums, products and quotients are right
to the last bit with any instruction set, and the elementary functions are made of nothing else.
"""

import math
from collections.abc import Sequence

from gatehouse.metrics.lazy_numpy import np
from gatehouse.metrics.metric import Array

NORMAL = 1.959963984540054
"""Standard errors from the middle of a normal interval of 95 % to its ends."""


def wilson(share: float, count: float, normal: float = NORMAL) -> tuple[float, float]:
    """The ends of Wilson's interval of a share (Wilson 1927, doi:10.1080/01621459.1927.10502953).

    It is not empty where the share is 0 or 1.

    Args:
        count: Of how many, above 0.
        normal: Standard errors from the middle of a normal interval to its ends, which say the level.
    """
    square = normal**2 / count
    spread = normal * math.sqrt(share * (1 - share) / count + square / (4 * count))
    middle = share + square / 2
    low, high = (middle - spread) / (1 + square), (middle + spread) / (1 + square)
    return max(0.0, min(low, share)), min(1.0, max(high, share))  # Rounding may put an end beyond the share, or 0 or 1.


def holm(p_values: Sequence[float] | Array) -> Array:
    """Adjusted p-values, shape (tests,): rejecting those below a level makes any mistake with at most that chance.

    Holm (1979): the k-th smallest of n is multiplied by n - k + 1, and no value is below a smaller one.
    """
    p_values = np.asarray(p_values, np.float64)
    order = np.argsort(p_values, kind="stable")
    factors = len(p_values) - np.arange(len(p_values))
    adjusted = np.empty(len(p_values))
    adjusted[order] = np.minimum(np.maximum.accumulate(p_values[order] * factors), 1.0)
    return adjusted


_PER_LN2 = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = float.fromhex("0x1.62e42feep-1"), float.fromhex("0x1.a39ef35793c76p-33")
_EXP_TERMS = tuple(1.0 / math.factorial(number) for number in range(13, -1, -1))
_LOG_TERMS = tuple(2.0 / odd for odd in range(25, 0, -2))
_SQRT_HALF = 0.7071067811865476


def exponential(values: Array) -> Array:
    """exp(value) of every value between -700 and 700; any shape.

    exp(x) is 2^k exp(r) with |r| <= ln(2) / 2, and exp(r) its Taylor series to r^13, whose rest is below 1e-17.
    """
    exponents = np.clip(values, -700.0, 700.0)
    powers = np.rint(exponents * _PER_LN2)
    rest = exponents - powers * _LN2_HIGH - powers * _LN2_LOW
    series = np.full_like(rest, _EXP_TERMS[0])
    for term in _EXP_TERMS[1:]:
        series *= rest
        series += term
    return np.ldexp(series, powers.astype(np.int32))


def logistic(margins: Array) -> Array:
    """1 / (1 + exp(-margin)) of every margin; any shape."""
    return np.asarray(1.0 / (1.0 + exponential(-margins)))


def softmax(margins: Array) -> Array:
    """The exponential of each margin divided by the sum over its row, shape (rows, classes)."""
    powers = exponential(margins - margins.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def logarithm(values: Array) -> Array:
    """The natural logarithm of every value, which must be above 0 and finite; any shape.

    log(2^k m) is k ln(2) + log(m) with m from sqrt(1/2) to sqrt(2), and log(m) the series of 2 artanh(s) in
    s = (m - 1) / (m + 1) to s^25, whose rest is below 1e-19.
    """
    mantissas, powers = np.frexp(values)
    small = mantissas < _SQRT_HALF
    mantissas, powers = np.where(small, 2.0 * mantissas, mantissas), powers - small
    ratio = (mantissas - 1.0) / (mantissas + 1.0)
    square = ratio * ratio
    series = np.full_like(ratio, _LOG_TERMS[0])
    for term in _LOG_TERMS[1:]:
        series *= square
        series += term
    return np.asarray(powers * _LN2_HIGH + (ratio * series + powers * _LN2_LOW))
