"""What a ranking metric is by definition: its mean over all orders of the rows of equal score, one by one."""

from collections.abc import Callable
from itertools import permutations
from typing import Any

import numpy as np


def mean_over_orders(labels: Any, scores: Any, groups: Any, measured: Callable[[list[bool]], float]) -> float:
    """The mean over groups with a relevant row of what is `measured` on whether each place is relevant; 0 for none."""
    found = []
    for group in np.unique(groups):
        rows = [(scores[row], bool(labels[row] > 0)) for row in np.flatnonzero(groups == group)]
        if not any(relevant for _, relevant in rows):
            continue
        orders = [order for order in permutations(rows) if list(order) == sorted(order, key=lambda row: -row[0])]
        found.append(np.mean([measured([relevant for _, relevant in order]) for order in orders]))
    return float(np.mean(found)) if found else 0.0
