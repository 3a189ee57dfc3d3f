"""Which epoch gives the weights, and when training ends before its last one. A round of trees counts as an epoch."""

from typing import Any

from gatehouse.metrics.tasks.direction import is_minimized
from gatehouse.training.spec import TrainSpec, own_metric


def best_epoch(history: list[dict[str, Any]], spec: TrainSpec) -> int:
    """Index of the best epoch; a later one has to gain more than `stopping.least_gain`. The last one of a refit."""
    if spec.stopping.refit:
        return len(history) - 1
    name = own_metric(spec)
    sign = 1.0 if is_minimized(name) else -1.0
    best = 0
    for index, row in enumerate(history):
        if sign * row[name] < sign * history[best][name] - spec.stopping.least_gain:
            best = index
    return best


def is_over(history: list[dict[str, Any]], spec: TrainSpec) -> bool:
    """Whether the last `stopping.patience` epochs brought nothing better, or a refit has had its epochs."""
    if spec.stopping.refit:
        return len(history) >= spec.stopping.refit
    return bool(history) and len(history) - 1 - best_epoch(history, spec) >= spec.stopping.patience
