"""Stores, artifacts and runs for notebooks: `gatehouse.open` and `gatehouse.run`."""

from gatehouse.notebook.store import open_store as open
from gatehouse.notebook.store import run

__all__ = ["open", "run"]
