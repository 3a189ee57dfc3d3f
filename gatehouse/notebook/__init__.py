"""Stores, artifacts and runs for notebooks: `gatehouse.open` and `gatehouse.run`."""

from gatehouse.notebook.run import run
from gatehouse.notebook.store import open_store as open

__all__ = ["open", "run"]
