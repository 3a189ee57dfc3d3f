"""How numbers and text are written."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatehouse.reports.format import column_format, in_markdown, number, percent, share


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


def test_shares() -> None:
    assert [percent(0.2371), percent(None), percent(math.nan)] == ["23.7 %", "–", "NaN"]
    texts = ["0 %", "< 0.1 %", "23.7 %", "> 99.9 %", "100.0 %"]
    assert [share(value) for value in (0, 1e-9, 0.2371, 0.99999, 1)] == texts


@given(st.floats() | st.integers())
def test_every_number_can_be_written(value: float) -> None:
    assert number(value)


def test_names_keep_their_underscores_in_markdown_and_text_becomes_no_markup() -> None:
    assert in_markdown("retrieve_training_set | <b>*x*</b>\n[a](b)") == (
        r"retrieve\_training\_set \| \<b\>\*x\*\</b\> \[a\](b)"
    )
    assert in_markdown("set `split.gap_days` and a_b, not `this") == r"set `split.gap_days` and a\_b, not \`this"
