"""The project of `gatehouse features`, as fixtures."""

from tests.cli.feature_place import empty, made, place

__all__ = ["empty", "made", "place"]
