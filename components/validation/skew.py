"""The skew stage: are the features that a model is asked about those that it was trained on?"""

from typing import Any

from gatehouse.components.artifacts.canonical import canonical_json
from gatehouse.components.artifacts.declaration import Resources
from gatehouse.components.artifacts.identity import operational
from gatehouse.components.artifacts.reference import Reference
from gatehouse.components.artifacts.stage import StageModel, stage
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.validation.measure import MeasureRequest, MeasureResult, measure, statistics_of
from gatehouse.components.validation.spec import SkewSpec, StatisticsSpec

TABLE = "features"
SKEW_FILE = "skew.json"


class SkewRequest(StageModel):
    """A training set, a dataset of logged serving features with the same column names, and thresholds.

    `statistics` says where they are computed; `force` measures again whatever the memo holds. Neither changes a result.
    """

    training_set: str
    serving: str
    spec: SkewSpec = SkewSpec()
    statistics: StatisticsSpec = operational(StatisticsSpec())
    force: str = operational("")


class SkewResult(StageModel):
    """The comparison, its verdict, and the reasons: `pass`, `fail`, or `unjudged` for too few rows or no features."""

    skew: str
    verdict: str
    reasons: tuple[str, ...]


@stage("skew", title="Compare serving with training", resources=Resources(cpu="2", memory="4G"))
def skew(request: SkewRequest, store: ArtifactStore) -> SkewResult:
    """Compare feature by feature, in bins of the training set; skew is a verdict, not an error.

    The artifact holds `skew.json`, `anomalies.json` and `report.html`. Where the training set's manifest names its
    features, those are compared, else all its columns.
    """
    from gatehouse.components.validation.skew_judge import SkewJudge
    from gatehouse.components.validation.skew_report import skew_page

    manifest = store.manifest(request.training_set)
    features = _features(manifest.details, [column.name for column in manifest.columns], request.spec)
    trained = _measured(request, store, request.training_set, features, "")
    served = _measured(request, store, request.serving, features, trained.statistics)
    judge = SkewJudge(
        spec=request.spec,
        features=features,
        trained=statistics_of(store, trained)[0][TABLE],
        served=statistics_of(store, served)[0][TABLE],
        rebinned=statistics_of(store, served)[1].get(TABLE, {}),
        rows=(_rows(store, trained), _rows(store, served)),
    )
    compared, findings = judge.run(), judge.findings
    unjudged = judge.too_few or all(one.psi is None for one in compared)
    if unjudged and findings.verdict == "pass":
        verdict, reasons = "unjudged", tuple(findings.not_judged[:1]) or ("no feature is compared",)
    else:
        verdict, reasons = findings.verdict, findings.reasons()
    body = {
        "verdict": verdict,
        "reasons": reasons,
        "rows": {"training": judge.rows[0], "serving": judge.rows[1]},
        "features": [one.to_json() for one in compared],
        "not_judged": findings.not_judged,
    }
    short = [Reference.parse(reference).short for reference in (request.training_set, request.serving)]
    reference = store.publish(
        "skew",
        manifest.name,
        {
            SKEW_FILE: canonical_json(body),
            "anomalies.json": canonical_json([one.to_json() for one in findings.sorted()]),
            "report.html": skew_page(short[0], short[1], judge.rows, verdict, reasons, compared, findings),
        },
        derived_from={
            "training_set": request.training_set,
            "serving": request.serving,
            "training_statistics": trained.statistics,
            "serving_statistics": served.statistics,
        },
        configuration=request.spec.model_dump(mode="json"),
        details={"verdict": verdict},
    )
    return SkewResult(skew=str(reference), verdict=verdict, reasons=reasons)


def _measured(
    request: SkewRequest, store: ArtifactStore, dataset: str, features: tuple[str, ...], baseline: str
) -> MeasureResult:
    """The statistics of one side; of columns that are not compared no value is kept."""
    columns = {column.name for column in store.manifest(dataset).columns}
    wanted = MeasureRequest(
        name=Reference.parse(dataset).name,
        datasets={TABLE: dataset},
        sensitive={TABLE: tuple(sorted(columns.difference(features).union(request.spec.sensitive)))},
        baseline=baseline,
        statistics=request.statistics,
    )
    return measure(wanted, store, force=request.force)


def _features(details: dict[str, Any], columns: list[str], spec: SkewSpec) -> tuple[str, ...]:
    named = [*details.get("numeric", ()), *details.get("categorical", ())] or columns
    return tuple(name for name in named if name not in spec.ignore)


def _rows(store: ArtifactStore, measured: MeasureResult) -> int:
    from gatehouse.components.validation.statistics.document import STATISTICS_FILE, rows_in

    return rows_in(store.read_json(measured.statistics, STATISTICS_FILE))[TABLE]


def described(result: SkewResult, store: ArtifactStore) -> str:
    """The verdict and the features that moved most, as text for a terminal."""
    body = store.read_json(result.skew, SKEW_FILE)
    lines = [f"{result.verdict}: {body['rows']['serving']:,} logged rows against {body['rows']['training']:,} trained"]
    lines += [f"  - {reason}" for reason in result.reasons]
    moved = [one for one in body["features"] if one["psi"] is not None][:10]
    lines += [f"  {one['feature']:<32} psi {one['psi']:.3f}  js {one['js']:.3f}" for one in moved]
    return "\n".join(lines)


def show(result: SkewResult, store: ArtifactStore, metrics: Any, report: Any) -> None:
    """Fill KFP's typed outputs (Metrics, HTML) from a comparison."""
    features = store.read_json(result.skew, SKEW_FILE)["features"]
    metrics.log_metric("features", len(features))
    metrics.log_metric("greatest psi", max((one["psi"] or 0.0 for one in features), default=0.0))
    metrics.log_metric("anomalies", len(store.read_json(result.skew, "anomalies.json")))
    store.copy(result.skew, "report.html", report.path)
    report.metadata["reference"] = store.address_of(result.skew)
