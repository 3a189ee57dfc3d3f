"""Classes: their names, and predictions in the order that the test rows number them by."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gatehouse.errors import ConfigurationError
from gatehouse.metrics.catalogue.metric import Array
from gatehouse.metrics.tasks.found import declared_task


def by_class(predicted: Array, own: Sequence[str], wanted: Sequence[str], count: int) -> Array:
    """Probabilities in the order of the test rows' classes: a class that the model never learned has no chance.

    Args:
        predicted: Of each class that the model knows, shape (rows, classes).
        own: Their names; empty where its training set numbers classes without names.
        wanted: Names of the test rows' classes, likewise.
        count: How many classes the test rows have, where they have no names.

    Returns:
        Shape (rows, classes): those of the test rows, then those that only the model knows.

    Raises:
        ConfigurationError: if only one of both has names.
    """
    if bool(own) != bool(wanted):
        raise ConfigurationError(
            f"The model's classes are {', '.join(own) or 'numbers'}, and those of the test rows "
            f"{', '.join(wanted) or 'numbers'}: expected names for both or for none. Train it again."
        )
    known = predicted.shape[1]
    if not wanted:
        return np.pad(predicted, ((0, 0), (0, max(0, count - known))))
    names = [*wanted, *(name for name in own[:known] if name not in wanted)]
    found = np.zeros((len(predicted), len(names)))
    for column, name in enumerate(own[:known]):
        found[:, names.index(name)] = predicted[:, column]
    return found


def class_names(details: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of the classes by number, of the details of a training set; empty where they have none."""
    two = ("negative", "positive") if declared_task(details).output == "probability" else ()
    return tuple(details.get("classes") or two)
