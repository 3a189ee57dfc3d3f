"""Drift: how far the features moved from the train part to the test part."""

from collections.abc import Iterator

from pydantic import Field

from gatehouse.evaluation.gate import Evidence, Rule, family
from gatehouse.store.identity import Spec


class Drift(Spec):
    """The limit of drift."""

    max_psi: float | None = Field(
        None,
        gt=0.0,
        allow_inf_nan=False,
        description="Largest population stability index of a feature from train to test; null for no limit.",
    )


@family(Drift, of_rows=False)
def drift(policy: Drift, evidence: Evidence) -> Iterator[Rule]:
    """No feature moved further than the limit; a feature of too few rows keeps no limit."""
    if (most := policy.max_psi) is None:
        return
    origins, expected = evidence.origins, f"a PSI of at most {most:g} from train to test"
    if origins is None or not origins.psi:
        why = (origins and origins.lacking) or "no feature was measured"
        yield Rule("drift", expected, f"not measured: {why}", False)
        return
    for name, value in sorted(origins.psi.items()):
        if value is None:
            yield Rule(f"drift {name}", expected, "not measured: too few rows", False, inconclusive=True)
        elif not value <= most:
            yield Rule(f"drift {name}", expected, f"{value:.4f}", False)
    measured = {name: value for name, value in origins.psi.items() if value is not None}
    if len(measured) == len(origins.psi) and all(value <= most for value in measured.values()):
        worst = max(measured, key=lambda name: (measured[name], name))
        yield Rule(
            "drift", f"{expected}, of {len(measured)} features", f"{measured[worst]:.4f} at most, of {worst}", True
        )
