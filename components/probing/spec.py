"""How the robustness of a model is probed."""

from pydantic import Field

from gatehouse.components.artifacts.identity import Spec


class ProbeSpec(Spec):
    """How many test rows are probed, and how often each feature is shuffled."""

    rows: int = Field(
        5_000, ge=100, le=200_000, description="Test rows, evenly spaced; of rankings whole groups. It bounds the time."
    )
    repeats: int = Field(5, ge=2, le=100, description="How often each feature is shuffled.")
    seed: int = Field(7, ge=0, description="Of the shuffling.")
