"""The page of the probes: which features a model depends on, and how it fares without them."""

from typing import Any

from gatehouse.metrics.catalogue import metric_named
from gatehouse.reports.page import Verdict, render
from gatehouse.store.store import ArtifactStore

_CHANGES = ("missing", "unknown category", "below the range", "above the range")
_DRAWN = 30


def page(store: ArtifactStore, reference: str) -> str:
    """The page of the probes of a model, as HTML."""
    manifest, probes = store.manifest(reference), store.read_json(reference, "robustness.json")
    metric, features = metric_named(probes["metric"]), probes["features"]
    changes = [
        (feature["name"], change, outcome) for feature in features for change, outcome in feature["changes"].items()
    ]
    losses = {(name, change): outcome["worse_by"] for name, change, outcome in changes if "worse_by" in outcome}
    (name, change), largest = max(losses.items(), key=lambda loss: loss[1])
    verdict = Verdict(
        "pass",
        f"{metric.title} of {metric.text(probes['value'])} gets worse by at most {largest:.4f}, if {name} is {change}.",
        warnings=[
            f"The model refuses rows with {name}: {change}."
            for name, change, outcome in changes
            if "refused" in outcome
        ],
        title="Probed",
    )

    def text(outcome: dict[str, Any] | None) -> str:
        if outcome is None:
            return ""
        return "refused" if "refused" in outcome else f"{outcome['worse_by']:+.4f} ({outcome['moved']:.3g})"

    return render(
        "probes.html",
        f"Robustness of {manifest.name}",
        f"{probes['rows']:,} of {manifest.details['of']:,} test rows, evenly spaced",
        verdict,
        metric=metric,
        features=features[:_DRAWN],
        changes=list(_CHANGES),
        rows=[[feature["name"], *(text(feature["changes"].get(name)) for name in _CHANGES)] for feature in features],
        inputs=manifest.derived_from,
    )
