"""Sample sizes: an equal candidate keeps the margin in 80 of 100 trials of that size, paired or apart."""

import numpy as np
import pytest

from gatehouse.evaluation.gate import Comparison
from gatehouse.evaluation.sample_size import paired_units, parallel_units

FOUND = Comparison("log_loss", 0.5, 0.5, 0.0, 0.0, 0.0, standard_error=0.6 / np.sqrt(900), units=900)
Z = 1.6448536269514722
TRIALS = 20_000


def test_pairs_of_that_number_show_the_margin_with_the_promised_chance() -> None:
    units = paired_units(FOUND, 0.95, 0.02)
    assert units is not None and 5000 < units < 6000
    error = 0.6 / np.sqrt(units)
    result = np.random.default_rng(1).normal(0.0, error, TRIALS)
    assert np.mean(result + Z * error <= 0.02) == pytest.approx(0.8, abs=0.01)
    assert paired_units(FOUND, 0.95, FOUND.smallest_shown(0.95)) in (900, 901)


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_two_arms_of_that_number_show_it_too(share: float) -> None:
    units = parallel_units(FOUND, (1.0 / np.sqrt(900), 0.8 / np.sqrt(900)), share, 0.95, 0.05)
    assert units is not None
    draw = np.random.default_rng(2)
    error = np.sqrt(1.0 / (share * units) + 0.64 / ((1 - share) * units))
    ours = draw.normal(0, 1.0 / np.sqrt(share * units), TRIALS)
    theirs = draw.normal(0, 0.8 / np.sqrt((1 - share) * units), TRIALS)
    assert np.mean(ours - theirs + Z * error <= 0.05) == pytest.approx(0.8, abs=0.01)
