"""A million predictions, 200 slices, 1,000 resamples: ours on shared draws, and scikit-learn in a loop over drawn rows.

Measured are log loss and ROC AUC of all rows and of each slice, of one model. A few rounds are taken of both, and their
time is scaled; preparing ours is counted once. Processor time, and the most memory that ours holds.
"""

import argparse
import resource
import time
from itertools import pairwise
from typing import Any

import numpy as np
from sklearn import metrics as sklearn

from gatehouse.evaluation.bootstrap import DrawnMetrics, Units, on_draws
from gatehouse.metrics.classification import log_loss, roc_auc
from gatehouse.metrics.tasks import BINARY

LEAST_RATIO, MOST_BYTES = 10.0, 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--slices", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=1_000)
    parser.add_argument("--our-rounds", type=int, default=20)
    parser.add_argument("--their-rounds", type=int, default=1)
    options = parser.parse_args()
    draw = np.random.default_rng(7)
    truth = draw.normal(size=options.rows)
    labels = (draw.random(options.rows) < 1 / (1 + np.exp(-truth))).astype(float)
    scores = 1 / (1 + np.exp(-(truth + draw.normal(size=options.rows))))
    members = draw.integers(0, options.slices, options.rows)
    own = _gatehouse_seconds(labels, scores, members, options.slices, options.our_rounds, options.rounds)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    peer = _sklearn_seconds(labels, scores, members, options.slices, options.their_rounds) * options.rounds
    print(f"{options.rows:,} rows, {options.slices} slices, {options.rounds:,} rounds")
    ratio = peer / own
    print(f"ours {own:.0f} s, scikit-learn {peer:.0f} s, ratio {ratio:.1f}, expected {LEAST_RATIO:g} at least")
    print(f"memory {memory / 1e6:.0f} MB, expected {MOST_BYTES / 1e6:.0f} MB at most")
    if ratio < LEAST_RATIO or memory > MOST_BYTES:
        raise SystemExit("Missed.")


def _gatehouse_seconds(labels: Any, scores: Any, members: Any, slices: int, rounds: int, scaled_to: int) -> float:
    start, units = time.process_time(), Units("row", len(labels))
    order = np.argsort(members, kind="stable")
    ends = np.searchsorted(members[order], np.arange(slices + 1))
    bounds = [(0, len(labels)), *pairwise(ends)]
    measured = []
    for first, last in bounds:
        rows = order[first:last]
        sample = BINARY.read(scores[rows], None)
        measured += [DrawnMetrics(metric.on_draws(labels[rows], sample), first, last) for metric in (log_loss, roc_auc)]
    prepared = time.process_time() - start
    start = time.process_time()
    on_draws(measured, units, rounds, 7, order)
    return prepared + (time.process_time() - start) / rounds * scaled_to


def _sklearn_seconds(labels: Any, scores: Any, members: Any, slices: int, rounds: int) -> float:
    draw, seconds = np.random.default_rng(7), 0.0
    for _ in range(rounds):
        drawn = draw.integers(0, len(labels), len(labels))
        start = time.process_time()
        seen, scored, where = labels[drawn], scores[drawn], members[drawn]
        for number in range(-1, slices):
            rows = slice(None) if number < 0 else where == number
            sklearn.log_loss(seen[rows], scored[rows])
            sklearn.roc_auc_score(seen[rows], scored[rows])
        seconds += time.process_time() - start
    return seconds / rounds


if __name__ == "__main__":
    main()
