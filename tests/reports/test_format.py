"""How numbers and text are written."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatehouse.reports.format import column_format, duration, escape, is_number, number, percent, ticks
from gatehouse.runtime.counting import counted


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (336_776, "336,776"),
        (-12, "−12"),
        (0.735123, "0.7351"),
        (-0.5, "−0.5"),
        (0.0, "0"),
        (0.00004, "4.0e-05"),
        (12.345, "12.35"),
        (1234.5, "1,234"),
        (2000.0, "2,000"),
        (1e300, "1.000e+300"),
        (623295805582075.1, "6.233e+14"),
        (math.nan, "NaN"),
        (-math.inf, "−∞"),
        (True, "True"),
        ("text", "text"),
        (np.int64(1000), "1,000"),
        (np.float32(0.5), "0.5"),
    ],
)
def test_number(value: object, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ([0.5, 0.73512, None], ["0.5000", "0.7351", "–"]),
        ([6.12345, 0.04, 0.0001], ["6.123", "0.040", "1.0e-04"]),
        ([36.0, 7.0], ["36", "7"]),
        ([3, 0.25], ["3", "0.2500"]),
        ([math.nan, 0.5], ["NaN", "0.5000"]),
        ([None], ["–"]),
        ([6.2e14, 0.7311, 12.0], ["6.200e+14", "0.73", "12.00"]),
    ],
)
def test_the_largest_number_of_a_column_says_how_many_decimals_all_have(
    values: list[float | None], texts: list[str]
) -> None:
    assert list(map(column_format(values), values)) == texts


def test_percent() -> None:
    assert [percent(0.2371), percent(None), percent(math.nan)] == ["23.7 %", "–", "NaN"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59.6, "1 min"), (3725, "1 h 2 min"), (86400, "1 d"), (90061, "1 d 1 h"), (-7200, "−2 h")],
)
def test_a_span_of_time_has_two_units_at_most(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_truth_values_are_no_numbers() -> None:
    assert not is_number(True)
    assert not is_number("1")
    assert is_number(np.float64(1))


@given(st.floats() | st.integers())
def test_every_number_can_be_written(value: float) -> None:
    assert number(value)


@given(st.text())
def test_escaped_text_is_printable_and_has_no_markup(text: str) -> None:
    safe = escape(text)
    safe.encode("utf-8")
    assert not set("<>\"'\x00\x08") & set(safe)


def test_what_cannot_be_printed_is_replaced() -> None:
    assert escape("a\ud800b\x00c<é") == "a\ufffdb\ufffdc&lt;é"


@pytest.mark.parametrize(
    ("values", "step", "labels"),
    [
        ([0.0, 0.2, 0.4], 0.2, ["0.0", "0.2", "0.4"]),
        ([0.0, 0.25], 0.25, ["0.00", "0.25"]),
        ([-0.002, 0.0], 0.002, ["−0.002", "0.000"]),
        ([0.0, 20000.0], 20000.0, ["0", "20k"]),
        ([0.0, 5e7], 5e7, ["0", "50M"]),
        ([0.0, 2e-6], 2e-6, ["0", "2×10⁻⁶"]),
        ([1.5e-5, 2e-5], 5e-6, ["1.5×10⁻⁵", "2×10⁻⁵"]),
        ([0.0, 500.0, 1000.0], 500.0, ["0", "500", "1000"]),
    ],
)
def test_ticks(values: list[float], step: float, labels: list[str]) -> None:
    assert ticks(values, step) == labels


def test_one_of_a_thing_has_no_plural() -> None:
    assert [counted(count, "row") for count in (0, 1, 1200)] == ["0 rows", "1 row", "1,200 rows"]
