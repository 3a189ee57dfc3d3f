"""Closed choices of a run's parameters: a list to choose from in the KFP UI, and nothing else is taken.

KFP's specs have them as `literals`; its SDK has no way to write them (2.17: an annotation `Literal[…]` is a TypeError).
"""

from typing import Any


def close(pipeline: Any, **choices: tuple[str, ...]) -> Any:
    """Say which values the text parameters of a pipeline may have; gives the pipeline."""
    for name, values in choices.items():
        for value in values:
            pipeline.pipeline_spec.root.input_definitions.parameters[name].literals.add().string_value = value
    return pipeline
