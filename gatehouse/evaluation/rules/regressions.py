"""Regressions: no further metric, and no slice, is shown to be worse than the champion."""

from collections.abc import Iterator
from statistics import NormalDist

from pydantic import Field

from gatehouse.evaluation.gate import Evidence, Rule, family
from gatehouse.metrics.arithmetic.intervals import holm
from gatehouse.metrics.catalogue import MetricName
from gatehouse.store.identity import Spec


class RegressionRule(Spec):
    """Comparisons with the champion that are tested together (Holm 1979)."""

    metrics: tuple[MetricName, ...] = Field((), description="Metrics that are compared on all test rows.")
    slices: bool = Field(
        True, description="Whether the metric of the comparison with the champion is also compared in each slice."
    )
    relative_tolerance: float = Field(
        0.005,
        ge=0.0,
        allow_inf_nan=False,
        description="How much worse the candidate may be, as a share of the champion's value.",
    )
    confidence: float = Field(
        0.95, gt=0.5, lt=1.0, description="Confidence that a refusal by this rule is not due to chance."
    )


class Regressions(Spec):
    """Regressions beyond the one metric that models are compared in."""

    regressions: RegressionRule | None = Field(
        None, description="Metrics and slices that may not be shown to be worse than the champion's; null for none."
    )


@family(Regressions, "regressions", "regression")
def regressions(policy: Regressions, evidence: Evidence) -> Iterator[Rule]:
    """No regression beyond the tolerance is significant after Holm's correction."""
    import numpy as np

    rule = policy.regressions
    if rule is None or evidence.comparison is None:
        return
    comparisons = {name: evidence.comparisons[name] for name in rule.metrics}
    if rule.slices:
        comparisons |= {f"in {name}": comparison for name, comparison in evidence.slice_comparisons.items()}
    tested = {name: comparison for name, comparison in comparisons.items() if not comparison.too_few}
    p_values = []
    for comparison in tested.values():
        beyond = comparison.worse_by - rule.relative_tolerance * abs(comparison.champion)
        if comparison.standard_error > 0:  # The normal approximation of the bootstrap.
            p_values.append(1 - NormalDist().cdf(beyond / comparison.standard_error))
        else:
            p_values.append(1.0 if beyond <= 0 else 0.0)
    adjusted = holm(np.array(p_values))
    expected = f"not shown to be worse than the champion by more than {rule.relative_tolerance:.3g} of its value"
    shown = {
        name: comparison
        for (name, comparison), p_value in zip(tested.items(), adjusted, strict=True)
        if not p_value > 1 - rule.confidence
    }
    for name, comparison in shown.items():
        worse = f"{comparison.worse_by:.5f} worse, with {rule.confidence:.0%} confidence in all {len(tested)}"
        yield Rule(f"regression {name}", expected, worse, False)
    few = f"; {len(comparisons) - len(tested)} of too few units" if len(comparisons) > len(tested) else ""
    if not tested:
        yield Rule("regressions", expected, f"not checked: no metric and no judged slice{few}", False)
    elif not shown:
        yield Rule("regressions", f"{expected}, in {len(tested)} metrics and slices", f"none{few}", True)
