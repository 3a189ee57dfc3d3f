"""Drift: how far the features moved from the train part to the test part."""

from collections.abc import Iterator

from pydantic import Field

from gatehouse.evaluation.gate import Evidence, Rule, family
from gatehouse.store.identity import Spec


class Drift(Spec):
    """How far features may have moved."""

    max_psi: float | None = Field(
        None,
        gt=0.0,
        allow_inf_nan=False,
        description="Largest population stability index of a feature from train to test; null for no limit.",
    )


@family(Drift, of_rows=False)
def drift(policy: Drift, evidence: Evidence) -> Iterator[Rule]:
    """That no feature moved further; one of too few rows to tell keeps no bound."""
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
    known = {name: value for name, value in origins.psi.items() if value is not None}
    if len(known) == len(origins.psi) and max(known.values()) <= most:
        worst = max(known, key=lambda name: (known[name], name))
        yield Rule("drift", f"{expected}, of {len(known)} features", f"{known[worst]:.4f} at most, of {worst}", True)
