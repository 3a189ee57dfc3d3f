"""How the robustness of a model is probed."""

from pydantic import Field

from gatehouse.store.identity import Spec


class ProbeSpec(Spec):
    """How many test rows are probed, and how often each feature is shuffled."""

    rows: int = Field(
        5_000,
        ge=100,
        le=200_000,
        description="Number of test rows, evenly spaced; a ranking takes whole groups. It limits the run time.",
    )
    repeats: int = Field(5, ge=2, le=100, description="How often each feature is shuffled.")
    seed: int = Field(7, ge=0, description="Seed of the shuffling.")
