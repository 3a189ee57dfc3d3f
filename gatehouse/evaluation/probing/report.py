"""The page of the probes: which features a model hangs on, and what becomes of it without them."""

from typing import Any

from gatehouse.metrics.catalogue import metric_named
from gatehouse.reports.page import Report, Verdict
from gatehouse.reports.row_charts import Dot, dot_chart
from gatehouse.store.store import ArtifactStore

_CHANGES = ("missing", "unknown category", "below the range", "above the range")
_DRAWN = 30


def page(store: ArtifactStore, reference: str) -> str:
    """The page of the probes of a model, as HTML.

    Args:
        store: Where the artifact is.
        reference: Of the probes.
    """
    manifest, found = store.manifest(reference), store.read_json(reference, "robustness.json")
    metric, features, rows = metric_named(found["metric"]), found["features"], manifest.details["of"]
    falls = {
        (each["name"], change): told["worse_by"]
        for each in features
        for change, told in each["changes"].items()
        if "worse_by" in told
    }
    (name, change), most = max(falls.items(), key=lambda each: each[1])
    refused = [
        f"{each['name']}: {change}"
        for each in features
        for change, told in each["changes"].items()
        if "refused" in told
    ]
    verdict = Verdict(
        "pass",
        f"{metric.title} of {metric.text(found['value'])} gets worse by {most:.4f} at most, where {name} is {change}.",
        warnings=tuple(f"The model refuses rows with {each}." for each in refused),
        title="Probed",
    )
    told = f"{found['rows']:,} of {rows:,} test rows, evenly spaced"
    drawn = Report(f"Robustness of {manifest.name}", told, verdict)
    shown = features[:_DRAWN]
    dots = [
        Dot(
            each["name"],
            mean := each["importance"]["mean"],
            mean - each["importance"]["spread"],
            mean + each["importance"]["spread"],
        )
        for each in shown
    ]
    drawn.section("Permutation importance", "", f"{len(features):,}")
    drawn.figure(
        dot_chart(dots, f"{metric.title} worse by", (("as it is", 0.0),)),
        f"By how much {metric.title} gets worse where the values of a feature are shuffled between rows, with the "
        "standard deviation over repeats. Features that tell the same stand in for each other: each looks "
        "unimportant.",
    )
    drawn.section(
        "One feature changed",
        f"By how much {metric.title} gets worse where a feature is so in all rows; in brackets how far "
        "predictions move.",
    )
    drawn.table(
        ["feature", *_CHANGES],
        [[each["name"], *(_cell(each["changes"].get(change)) for change in _CHANGES)] for each in features],
    )
    drawn.section("Made from").facts({role.replace("_", " "): made for role, made in manifest.derived_from.items()})
    return drawn.html()


def _cell(told: dict[str, Any] | None) -> str:
    if told is None:
        return ""
    return "refused" if "refused" in told else f"{told['worse_by']:+.4f} ({told['moved']:.3g})"
