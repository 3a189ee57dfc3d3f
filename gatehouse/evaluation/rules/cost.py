"""Cost: latency, size and memory of a model."""

from collections.abc import Iterator

from pydantic import Field

from gatehouse.evaluation.gate import Evidence, Rule, family
from gatehouse.store.identity import Spec


class CostBounds(Spec):
    """Limits, null for none; times and memory are those of the machine that evaluates."""

    latency_ms: float | None = Field(
        None,
        gt=0.0,
        allow_inf_nan=False,
        description="Largest 95th percentile of the time to score one row, in milliseconds.",
    )
    size_mb: float | None = Field(
        None, gt=0.0, allow_inf_nan=False, description="Largest size of the model's files, in megabytes."
    )
    memory_mb: float | None = Field(
        None,
        gt=0.0,
        allow_inf_nan=False,
        description="Largest memory of a process that loads the model and scores a batch, in megabytes.",
    )

    @property
    def measures(self) -> bool:
        """Whether a bounded number differs between measurements."""
        return self.latency_ms is not None or self.memory_mb is not None


class Costs(Spec):
    """Limits of the cost."""

    cost: CostBounds = Field(CostBounds(), description="Limits on the latency, size and memory of a model.")


@family(Costs, "latency", "model size", "memory", of_rows=False)
def cost(policy: Costs, evidence: Evidence) -> Iterator[Rule]:
    """The model keeps every bound; a number that was not measured keeps none."""
    bounds, measured = policy.cost, evidence.cost
    where = f" on {measured.hardware}" if measured else ""
    if (most := bounds.latency_ms) is not None:
        value = measured.latency_ms if measured else None
        yield _rule("latency", most, value, "ms for 95 of 100 single rows", f"ms{where}")
    if (most := bounds.size_mb) is not None:
        size = sum(file.bytes for file in evidence.model.files) / 1e6
        yield _rule("model size", most, size if evidence.model.files else None, "MB", "MB")
    if (most := bounds.memory_mb) is not None:
        value = measured.memory_mb if measured else None
        yield _rule("memory", most, value, "MB", f"MB{where}")


def _rule(name: str, most: float, value: float | None, expected: str, unit: str) -> Rule:
    text = "not measured" if value is None else f"{value:.4g} {unit}"
    return Rule(name, f"at most {most:g} {expected}", text, value is not None and value <= most)
