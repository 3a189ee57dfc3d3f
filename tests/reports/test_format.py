"""How numbers and text are written."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatehouse.reports.format import in_markdown, number


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


@given(st.floats() | st.integers())
def test_every_number_can_be_written(value: float) -> None:
    assert number(value)


def test_names_keep_their_underscores_in_markdown_and_text_becomes_no_markup() -> None:
    assert in_markdown("retrieve_training_set | <b>*x*</b>\n[a](b)") == (
        r"retrieve\_training\_set \| \<b\>\*x\*\</b\> \[a\](b)"
    )
    assert in_markdown("set `split.gap_days` and a_b, not `this") == r"set `split.gap_days` and a\_b, not \`this"
