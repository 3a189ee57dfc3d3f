"""The coefficient of determination."""

import numpy as np

from gatehouse.metrics.catalogue.declared import metric
from gatehouse.metrics.catalogue.metric import Array, OnDraw


def _prepare(labels: Array, values: Array) -> OnDraw:
    errors = (values - labels) ** 2

    def drawn_rows(times: Array) -> float:
        # Seen from a drawn label, labels that are all equal are exactly 0.
        apart = labels - labels[np.argmax(times > 0)]
        apart = apart - np.sum(times * apart) / times.sum()
        return _explained(float(np.sum(times * errors)), float(np.sum(times * apart**2)))

    return drawn_rows


def _explained(errors: float, spread: float) -> float:
    return 1 - errors / spread if spread else float(errors == 0)


@metric(
    title="R²", better="higher", tasks=("regression",), reads="scores", prepare=_prepare, chance={"regression": 0.0}
)
def r2(labels: Array, values: Array) -> float:
    """Share of the labels' variance that values explain, shape (rows,) each; of equal labels 1 if right, else 0."""
    errors = float(np.sum((values - labels) ** 2))
    # A sum of squares around a mean that was rounded is not zero where it should be.
    equal = labels.min() == labels.max()
    return _explained(errors, 0.0 if equal else float(np.sum((labels - np.mean(labels)) ** 2)))
