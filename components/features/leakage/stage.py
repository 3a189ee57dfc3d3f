"""The stage that judges whether a training set holds only what was known at decision time."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gatehouse.components.artifacts.canonical import canonical_json
from gatehouse.components.artifacts.declaration import Resources
from gatehouse.components.artifacts.stage import StageModel, stage
from gatehouse.components.artifacts.store import ArtifactStore

if TYPE_CHECKING:
    from gatehouse.components.features.leakage.replay import Difference

REPORT = "leakage.json"


class LeakageRequest(StageModel):
    """A training set with all that it was made from.

    Attributes:
        snapshot: Reference of the snapshot.
        feature_tables: Reference of the feature tables.
        training_set: Reference of the training set.
        definitions: Reference of the feature definitions.
        alarm: ROC AUC above which one feature is taken for a leak.
        cuts: Moments of the past at which the training set is computed again.
    """

    snapshot: str
    feature_tables: str
    training_set: str
    definitions: str
    alarm: float = 0.80
    cuts: int = 6


class LeakageResult(StageModel):
    """The leakage report; the verdict `pass` or `fail`, and why."""

    leakage: str
    verdict: str
    reasons: tuple[str, ...]


@stage(
    "check_leakage",
    title="Check for leakage",
    resources=Resources(cpu="2", memory="8G"),
    pages={"leakage": "gatehouse.components.features.leakage.report:page"},
)
def check_leakage(request: LeakageRequest, store: ArtifactStore) -> LeakageResult:
    """Judge whether the training set holds only what was known at decision time; it writes its report either way."""
    import pyarrow.parquet as pq

    from gatehouse.components.features.definitions.repository import check_out
    from gatehouse.components.features.leakage.replay import Difference, cut_times, replay
    from gatehouse.components.features.leakage.single_features import single_feature_auc
    from gatehouse.components.features.table_files import feature_files, raw_tables

    manifest = store.manifest(request.training_set)
    details = manifest.details
    training_set = pq.read_table(store.paths(request.training_set))
    tables, features = raw_tables(store, request.snapshot), feature_files(store, request.feature_tables)
    cuts: list[dict[str, Any]] = []
    differences: list[Difference] = []
    with store.workspace() as workspace:
        repository = check_out(store, request.definitions, workspace / "feature_repo")
        for cut in cut_times(training_set["decision_time"], request.cuts):
            rows, found = replay(repository, tables, features, training_set, details["views"], cut)
            cuts.append({"cut": cut.isoformat(), "rows": rows})
            differences += found
    areas = single_feature_auc(training_set, details["label"], details["numeric"], details["categorical"])
    reasons = _reasons(differences, areas, request.alarm)
    verdict = "fail" if reasons else "pass"
    body = {
        "verdict": verdict,
        "reasons": reasons,
        "alarm": request.alarm,
        "rows": training_set.num_rows,
        "cuts": cuts,
        "differences": [one.as_dict() for one in differences],
        "single_feature_auc": {name: round(area, 6) for name, area in areas.items()},
    }
    reference = store.publish(
        "leakage",
        manifest.name,
        {REPORT: canonical_json(body)},
        derived_from={
            "training_set": request.training_set,
            "feature_tables": request.feature_tables,
            "snapshot": request.snapshot,
            "definitions": request.definitions,
        },
        configuration={"alarm": request.alarm, "cuts": request.cuts},
        details={"verdict": verdict},
    )
    return LeakageResult(leakage=str(reference), verdict=verdict, reasons=tuple(reasons))


def _reasons(differences: Sequence["Difference"], areas: Mapping[str, float], alarm: float) -> list[str]:
    """Why the verdict is `fail`: the first difference of every feature, and every feature above the alarm."""
    first: dict[tuple[str, str], str] = {}
    for one in differences:
        first.setdefault((one.view, one.feature), str(one))
    loud = [
        f"{name} alone tells the label with ROC AUC {area:.3f}, above the alarm of {alarm:.2f}: it may hold the outcome"
        for name, area in sorted(areas.items())
        if area > alarm
    ]
    return [*first.values(), *loud]
