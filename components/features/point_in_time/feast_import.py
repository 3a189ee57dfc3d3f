"""Imports Feast in a quarter of its time: without run-time checks of its own types, and without PyTorch.

Feast lets typeguard check every call of its classes. For that typeguard parses the whole module again for each method,
eight seconds in all. Feast also imports PyTorch where it finds it, to give results as tensors, which nothing here asks
for.
"""

import importlib
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def quickly() -> Iterator[None]:
    """While open, an import of Feast is quick and says nothing. Feast stays as it is where it was imported before."""
    typeguard: Any = importlib.import_module("typeguard")  # Feast requires it.
    checked, hidden = typeguard.typechecked, "torch" not in sys.modules
    typeguard.typechecked = _unchecked
    if hidden:
        sys.modules["torch"] = None  # type: ignore[assignment]  # Python's own way to say that there is none.
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        typeguard.typechecked = checked
        if hidden:
            del sys.modules["torch"]


def _unchecked(target: object = None, **_: object) -> object:
    return target if target is not None else _unchecked
