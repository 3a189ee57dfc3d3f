"""Which parts of a split a model was trained on."""

from collections.abc import Mapping
from typing import Any


def learned_parts(configuration: Mapping[str, Any]) -> tuple[str, ...]:
    """The parts of the split whose rows a model was trained on, by its manifest's configuration."""
    return ("train", "validation") if configuration.get("stopping", {}).get("refit") else ("train",)
