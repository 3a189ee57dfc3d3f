"""Closed choices of a run's parameters: a list to choose from in the KFP UI, and nothing else is taken.

KFP's specs have them as `literals`; its SDK has no way to write them (2.17: an annotation `Literal[…]` is a TypeError).
"""

from collections.abc import Mapping
from typing import Any

from gatehouse.errors import ConfigurationError


def close(pipeline: Any, **choices: tuple[str, ...]) -> Any:
    """Say which values the text parameters of a pipeline may have; gives the pipeline."""
    for name, values in choices.items():
        for value in values:
            pipeline.pipeline_spec.root.input_definitions.parameters[name].literals.add().string_value = value
    return pipeline


def require_choices(pipeline: Any, arguments: Mapping[str, Any]) -> None:
    """Refuse what KFP's API server refuses, before anything runs.

    Raises ConfigurationError if a parameter is given that is none of its choices.
    """
    parameters = pipeline.pipeline_spec.root.input_definitions.parameters
    for name, value in arguments.items():
        choices = [choice.string_value for choice in parameters[name].literals]
        if choices and value not in choices:
            raise ConfigurationError(f"{name}: expected one of {', '.join(choices)}, found {value!r}.")
