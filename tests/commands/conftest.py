"""The project of `gatehouse features`, as fixtures."""

from tests.commands.feature_place import empty, made, place

__all__ = ["empty", "made", "place"]
