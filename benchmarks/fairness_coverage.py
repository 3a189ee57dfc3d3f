"""How often the 95 % intervals of differences between groups hold the truth, over simulated test sets.

All groups are alike, or one is given higher scores. The true rates are known from a large sample.
"""

import argparse
from typing import Any

import numpy as np
import pyarrow as pa

from gatehouse.evaluation.bootstrap import Units
from gatehouse.evaluation.fairness import fairness_of
from gatehouse.evaluation.spec import EvaluationSpec
from gatehouse.metrics.metric import Predictions
from gatehouse.metrics.tasks import BINARY

GROUPS, SHIFTS, TRUTH = {2: 2_000, 15: 9_000}, (0.0, 0.05, 0.2), 600_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=int, default=200)
    parser.add_argument("--draws", type=int, default=200)
    options = parser.parse_args()
    for groups, rows in GROUPS.items():
        for shift in SHIFTS:
            print(f"\n{groups} groups, {rows:,} rows, scores of one of them {shift / 2:g} higher", flush=True)
            true = _truth(groups, shift)
            covered = _covered(true, groups, rows, shift, options.sets, options.draws)
            for name, value in true.items():
                print(f"{name:34} {value:.3f} {covered[name] / options.sets:7.1%}", flush=True)


def _covered(true: dict[str, float], groups: int, rows: int, shift: float, sets: int, draws: int) -> dict[str, int]:
    """By measure, in how many sets the interval holds the truth."""
    covered, spec = dict.fromkeys(true, 0), EvaluationSpec(protected=("g",), min_slice_rows=50, bootstrap_samples=draws)
    for number in range(sets):
        members, labels, read = _sampled(groups, rows, shift, number)
        (result,) = fairness_of(pa.table({"g": members}), labels, {"candidate": read}, spec, BINARY, Units("row", rows))
        for name, value in true.items():
            _, low, high = result.measures["candidate"][name]
            covered[name] += low - 1e-9 <= value <= high + 1e-9
    return covered


def _truth(groups: int, shift: float) -> dict[str, float]:
    """The measures where only the first group is another, if any is."""
    members, labels, read = _sampled(groups, TRUTH, shift, 10**6)
    assert read.classes is not None
    first, predicted = members == 0, read.classes

    def rates(rows: Any) -> tuple[float, float]:
        return (float(predicted[first & rows].mean()), float(predicted[~first & rows].mean())) if shift else (0.5, 0.5)

    chosen, came, alarmed = rates(True), rates(labels == 1), rates(labels == 0)
    apart = {name: abs(rate - other) for name, (rate, other) in {"came": came, "alarmed": alarmed}.items()}
    return {
        "demographic_parity_difference": abs(chosen[0] - chosen[1]),
        "demographic_parity_ratio": min(chosen) / max(chosen),
        "equal_opportunity_difference": apart["came"],
        "equalized_odds_difference": max(apart.values()),
    }


def _sampled(groups: int, rows: int, shift: float, seed: int) -> tuple[Any, Any, Predictions]:
    draw = np.random.default_rng(seed)
    members, chances = draw.integers(0, groups, rows), draw.beta(2, 3, rows)
    labels = (draw.random(rows) < chances).astype(float)
    scores = np.clip(chances + shift * (members == 0) / 2, 0, 1)
    return members, labels, Predictions(scores, scores, scores >= 0.4)


if __name__ == "__main__":
    main()
