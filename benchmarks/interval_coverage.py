"""How often 95 % intervals hold the truth, and how often the gate is wrong, over simulated test sets.

Test sets are drawn from a population whose metrics are known from a million rows. Rows are independent, or come in
groups that share an effect and are drawn whole. The gate's curves are over the true difference to the champion: below
the tolerance a refusal is false, above it a pass is.
"""

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np

from gatehouse.evaluation.bootstrap import DrawnMetrics, Units, compared, interval, on_draws
from gatehouse.metrics.catalogue import metrics_for
from gatehouse.metrics.classification import log_loss
from gatehouse.metrics.metric import Predictions, all_on_draws, by_metric
from gatehouse.metrics.tasks import TASKS

PER_GROUP, PER_RANKING = 5, 10
_LEAST, _MOST, _SHARED = 0.93, 0.97, 0.7
_TOLERANCE, _CONFIDENCE = 0.01, 0.95


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000)
    parser.add_argument("--sets", type=int, default=1_000)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--truth", type=int, default=1_000_000)
    parser.add_argument("--tasks", nargs="*", default=list(TASKS))
    options = parser.parse_args()
    outside = []
    for task in options.tasks:
        for grouped in (False, True):
            print(f"\n{task}, {options.rows:,} rows, {'groups' if grouped else 'rows'} drawn", flush=True)
            shares = coverage(task, grouped, options.rows, options.sets, options.draws, options.truth)
            for name, share in shares.items():
                mark = "" if _LEAST <= share <= _MOST else "  outside"
                outside += [f"{task} {name}"] if mark else []
                print(f"{name:34} {share:6.1%}{mark}", flush=True)
    print(f"\nthe gate in log loss, tolerance {_TOLERANCE:g}\ntrue difference   passed   inconclusive   refused")
    for difference, outcomes in gate_curve(options.rows, options.sets, options.draws).items():
        print(f"{difference:15.4f} " + " ".join(f"{share:10.1%}" for share in outcomes))
    print(f"\noutside of {_LEAST:.0%} to {_MOST:.0%}: {', '.join(outside) or 'none'}")


def coverage(task: str, grouped: bool, rows: int, sets: int, draws: int, truth: int) -> dict[str, float]:
    """By metric, the share of test sets whose interval holds the value of the population."""
    metrics = metrics_for(task)
    population = _sampled(task, grouped, truth, 10**9)
    true = {name: metric.measure(*population[:2]) for name, metric in metrics.items()}
    covered = dict.fromkeys(metrics, 0)
    for number in range(sets):
        labels, predictions, units = _sampled(task, grouped, rows, number)
        every = [*metrics.values()]
        drawn = on_draws([DrawnMetrics(all_on_draws(every, labels, predictions))], units, draws, 7)
        for (name, metric), values in zip(metrics.items(), by_metric(every, drawn), strict=True):
            low, high = interval(metric, values, units.number, labels, predictions)
            covered[name] += low <= true[name] <= high
    return {name: count / sets for name, count in covered.items()}


def gate_curve(rows: int, sets: int, draws: int) -> dict[float, tuple[float, float, float]]:
    """By true difference in log loss, the shares of candidates that pass, are inconclusive, and are refused."""
    shares = {}
    for spread in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0):
        true = _difference(_pair(400_000, spread, 10**9))
        outcomes = [_outcome(_pair(rows, spread, number), draws) for number in range(sets)]
        shares[true] = tuple(outcomes.count(outcome) / sets for outcome in ("pass", "inconclusive", "refused"))
    return shares  # type: ignore[return-value]  # Three outcomes.


def _outcome(pair: tuple[Any, Predictions, Predictions], draws: int) -> str:
    labels, candidate, champion = pair
    drawn = on_draws(
        [DrawnMetrics(log_loss.on_draws(labels, scores)) for scores in (candidate, champion)], _rows(labels), draws, 7
    )
    values = [log_loss.measure(labels, scores) for scores in (candidate, champion)]
    result = compared(log_loss, values[0], values[1], (drawn[:, 0], drawn[:, 1]), _CONFIDENCE, len(labels))
    if result.worst_bound <= _TOLERANCE:
        return "pass"
    blind = result.smallest_shown(_CONFIDENCE) > _TOLERANCE
    return "inconclusive" if blind and result.best_bound <= _TOLERANCE else "refused"


def _difference(pair: tuple[Any, Predictions, Predictions]) -> float:
    labels, candidate, champion = pair
    return log_loss.measure(labels, candidate) - log_loss.measure(labels, champion)


def _pair(rows: int, spread: float, seed: int) -> tuple[Any, Predictions, Predictions]:
    """Labels, a candidate whose logits are off by a normal error of `spread`, and a champion off by 0.3."""
    draw = np.random.default_rng(seed)
    truth = draw.normal(size=rows)
    labels = (draw.random(rows) < _logistic(truth)).astype(float)
    candidate, champion = (truth + off * draw.normal(size=rows) for off in (np.hypot(spread, 0.3), 0.3))
    return labels, *(TASKS["binary"].read(_logistic(scores), None) for scores in (candidate, champion))


def _rows(labels: Any) -> Units:
    return Units("row", len(labels))


def _sampled(task: str, grouped: bool, rows: int, seed: int) -> tuple[Any, Predictions, Units]:
    """Labels, predictions and what is drawn; the effect that rows of a group share is in label and prediction."""
    draw = np.random.default_rng(seed)
    size = PER_GROUP * (PER_RANKING if task == "ranking" else 1) if grouped else 1
    number = np.arange(rows) // size
    shared = draw.normal(size=number[-1] + 1)[number] * _SHARED if grouped else 0.0
    labels, predictions = _SAMPLES[task](draw, rows, shared)
    if grouped:
        return labels, predictions, Units("unit", int(number[-1]) + 1, number)
    if predictions.groups is not None:
        return labels, predictions, Units("group", int(predictions.groups[-1]) + 1, predictions.groups)
    return labels, predictions, _rows(labels)


def _binary(draw: np.random.Generator, rows: int, shared: Any) -> tuple[Any, Predictions]:
    truth = draw.normal(size=rows) + shared
    labels = (draw.random(rows) < _logistic(truth)).astype(float)
    return labels, TASKS["binary"].read(_logistic(1.6 * truth + 0.3 + 0.3 * draw.normal(size=rows)), None)


def _multiclass(draw: np.random.Generator, rows: int, shared: Any) -> tuple[Any, Predictions]:
    logits = draw.normal(size=(rows, 3))
    logits[:, 0] += shared
    chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    labels = (draw.random(rows)[:, None] > chances.cumsum(axis=1)).sum(axis=1).clip(0, 2).astype(float)
    scores = np.exp(1.3 * logits)
    return labels, TASKS["multiclass"].read(scores / scores.sum(axis=1, keepdims=True), None)


def _regression(draw: np.random.Generator, rows: int, shared: Any) -> tuple[Any, Predictions]:
    truth = draw.normal(size=rows) + shared
    return 20 + truth + draw.normal(size=rows), TASKS["regression"].read(20 + 0.8 * truth, None)


def _ranking(draw: np.random.Generator, rows: int, shared: Any) -> tuple[Any, Predictions]:
    truth = draw.normal(size=rows)
    labels = np.round(np.maximum(truth, 0))
    # What rows of a group share is how hard they are to rank.
    scores = truth + np.exp(shared) * draw.normal(size=rows)
    return labels, TASKS["ranking"].read(scores, np.arange(rows) // PER_RANKING)


def _logistic(values: Any) -> Any:
    return 1 / (1 + np.exp(-values))


_SAMPLES: dict[str, Callable[[np.random.Generator, int, Any], tuple[Any, Predictions]]] = {
    "binary": _binary,
    "multiclass": _multiclass,
    "regression": _regression,
    "ranking": _ranking,
}


if __name__ == "__main__":
    main()
