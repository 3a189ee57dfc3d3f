"""Kubeflow Pipelines components that take a model from raw events to production.

In a notebook, `gatehouse.open` opens a store and `gatehouse.run` runs a project: docs/notebooks.md.
"""

from typing import Any

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """`open` and `run`, imported when they are used."""
    if name not in ("open", "run"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.notebook"), name)
