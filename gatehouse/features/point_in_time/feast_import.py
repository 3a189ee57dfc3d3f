"""Imports Feast in a quarter of the time: without run-time checks of its own types, and without PyTorch.

Feast lets typeguard check every call of its classes. For this, typeguard parses the whole module again for each method,
which takes eight seconds. Feast also imports PyTorch, if it is installed, to return tensors, which we do not use.
"""

import importlib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gatehouse.runtime.importing import without


@contextmanager
def quickly() -> Iterator[None]:
    """Inside this context, importing Feast is quick and prints nothing. No effect if Feast is imported already."""
    typeguard: Any = importlib.import_module("typeguard")  # Feast requires it.
    checked = typeguard.typechecked
    typeguard.typechecked = _unchecked
    try:
        with warnings.catch_warnings(), without("torch"):
            warnings.simplefilter("ignore")
            yield
    finally:
        typeguard.typechecked = checked


def _unchecked(target: object = None, **_: object) -> object:
    return target if target is not None else _unchecked
