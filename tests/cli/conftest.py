"""The project of `gatehouse features`, and the gate of the registry's tests, as fixtures."""

from tests.cli.feature_place import empty, made, place
from tests.registry.conftest import gate

__all__ = ["empty", "gate", "made", "place"]
