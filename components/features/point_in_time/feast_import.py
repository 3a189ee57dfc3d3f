"""Imports Feast in a quarter of its time: without run-time checks of its own types, and without PyTorch.

Feast lets typeguard check every call of its classes. For that typeguard parses the whole module again for each method,
eight seconds in all. Feast also imports PyTorch where it finds it, to give results as tensors, which nothing here asks
for.
"""

import importlib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gatehouse.importing import without


@contextmanager
def quickly() -> Iterator[None]:
    """While open, an import of Feast is quick and prints nothing; if Feast was imported before, nothing changes."""
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
