"""Stores, artifacts and runs for notebooks: `gatehouse.open` and `gatehouse.run`."""

from gatehouse.notebook.run import Run, run
from gatehouse.notebook.store import Store, open_store

__all__ = ["Run", "Store", "open", "run"]

open = open_store
