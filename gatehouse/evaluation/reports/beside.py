"""What is kept beside a candidate: what it costs, and how robust it is, where somebody measured."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from gatehouse.errors import CorruptArtifactError, ErasedArtifactError, MissingArtifactError
from gatehouse.metrics.catalogue import metric_named
from gatehouse.reports.page import Report
from gatehouse.reports.row_charts import Dot, dot_chart
from gatehouse.store.records import read_record
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore

Json = Mapping[str, Any]
_DRAWN = 15
_FILE = "robustness.json"


def add_cost(drawn: Report, store: ArtifactStore, model: str, judged: Json | None) -> None:
    """The section of cost: of the measurement that the gate judged by, else of the newest.

    Args:
        drawn: The page.
        store: Holds measurements.
        model: The candidate.
        judged: What the verdict says of cost; None where no rule looked at it.
    """
    newest = store.measurements(model, "evaluate")[:1]
    found = read_record(store.objects, judged["measurement"]) if judged else next(iter(newest), None)
    if found is None:
        drawn.section("Cost", "Nobody measured what the candidate costs, or the measurement is gone.")
        return
    latency = found["latency"]
    told = "The gate judged by this measurement." if judged else "No rule of the gate looks at it."
    drawn.section("Cost", f"On {latency['hardware']}; it is another number each time. {told}")
    quantiles = list(latency["single_row_ms"])
    rows = {"one row": latency["single_row_ms"], f"a batch of {latency['batch']['rows']:,}": latency["batch"]["ms"]}
    drawn.table(
        ["milliseconds for", *quantiles], [[name, *(each[one] for one in quantiles)] for name, each in rows.items()]
    )
    facts = {"rows a second": f"{latency['rows_per_second']:,}", "size": f"{found['size_bytes'] / 1e6:.3f} MB"}
    memory = f"{found['memory_mb']:.0f} MB" if "memory_mb" in found else "not measured: cost.memory_mb bounds nothing"
    drawn.facts(facts | {"most memory": memory})


def add_robustness(drawn: Report, store: ArtifactStore, inputs: Mapping[str, str]) -> None:
    """The section of robustness: permutation importance, and the worst that a changed feature does.

    Args:
        drawn: The page.
        store: Holds the probes.
        inputs: What the evaluation was derived from.
    """
    reference = _probes(store, inputs)
    if reference is None:
        drawn.section("Robustness", "The candidate was not probed when this page was drawn: `probes` of project.yaml.")
        return
    found = store.read_json(reference, _FILE)
    metric, features = metric_named(found["metric"]), found["features"]
    drawn.section(
        "Robustness",
        f"By how much {metric.title} gets worse, on {found['rows']:,} test rows, where the values of a feature are "
        "shuffled between rows (permutation importance), and where it is missing, unknown or out of range in all.",
        f"{len(features):,}",
    )
    dots = []
    for each in features[:_DRAWN]:
        mean, spread = (each["importance"][name] for name in ("mean", "spread"))
        dots.append(Dot(each["name"], mean, mean - spread, mean + spread))
    cut = f", the first {_DRAWN} of {len(features)} features" if len(features) > _DRAWN else ""
    drawn.figure(
        dot_chart(dots, f"{metric.title} worse by", (("as it is", 0.0),)),
        f"Permutation importance with its standard deviation over repeats{cut}.",
    )
    drawn.table(["feature", "shuffled", "at worst", "where it is"], [_row(each) for each in features[:_DRAWN]])
    drawn.facts({"probes": reference})


def _row(feature: Json) -> list[Any]:
    falls = {change: told["worse_by"] for change, told in feature["changes"].items() if "worse_by" in told}
    refused = [change for change, told in feature["changes"].items() if "refused" in told]
    worst = max(falls, key=lambda change: falls[change]) if falls else ""
    told = ", ".join([*filter(None, [worst]), *(f"refused: {change}" for change in refused)])
    return [feature["name"], feature["importance"]["mean"], falls.get(worst), told]


def _probes(store: ArtifactStore, inputs: Mapping[str, str]) -> str | None:
    wanted = {role: inputs[role] for role in ("model", "training_set", "split")}
    for reference in store.references("robustness", Reference.parse(wanted["model"]).name):
        # One that cannot be read is no reason to show nothing of this evaluation.
        with suppress(MissingArtifactError, CorruptArtifactError, ErasedArtifactError):
            if store.manifest(reference).derived_from == wanted:
                return str(reference)
    return None
