"""The skew stage: are the features that a model is asked about those that it was trained on?"""

from typing import Any

from gatehouse.data.statistics.measurement import measurement
from gatehouse.data.statistics.stage import MeasureRequest, measure
from gatehouse.data.validation.sensitivity import sensitive_columns
from gatehouse.data.validation.spec import SkewSpec, StatisticsSpec
from gatehouse.errors import ConfigurationError
from gatehouse.store.canonical import canonical_json
from gatehouse.store.identity import identity_of, operational
from gatehouse.store.reference import Reference
from gatehouse.store.stage import Resources, StageModel, stage
from gatehouse.store.store import ArtifactStore

TABLE = "features"
SKEW_FILE = "skew.json"


class SkewRequest(StageModel):
    """What is compared.

    Attributes:
        training_set: Reference of the training set.
        serving: Reference of a dataset of logged features with the same column names.
        spec: The thresholds.
        statistics: Where statistics are computed; it changes no result.
        force: Measure again whatever the memo holds; it changes no result.
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


@stage(
    "skew",
    title="Compare serving with training",
    resources=Resources(cpu="2", memory="4G"),
    pages={"skew": "gatehouse.data.validation.skew.report:page"},
)
def skew(request: SkewRequest, store: ArtifactStore) -> SkewResult:
    """Compare feature by feature, in bins of the training set; skew is a verdict, not an error.

    The artifact holds `skew.json` and `anomalies.json`. Where the training set's manifest names its features, those are
    compared, else all its columns.

    Raises:
        ConfigurationError: if one of the two is no table.
    """
    from gatehouse.data.validation.skew.judge import SkewJudge

    manifest = store.manifest(request.training_set)
    for asked in (manifest, store.manifest(request.serving)):
        if not asked.columns:
            raise ConfigurationError(f"{asked.reference}: expected a table, such as a training set, found none in it.")
    features = _features(manifest.details, [column.name for column in manifest.columns], request.spec)
    trained = _measured(request, store, request.training_set, features, "")
    served = _measured(request, store, request.serving, features, trained)
    before, now = measurement(store, trained), measurement(store, served)
    judge = SkewJudge(
        spec=request.spec,
        features=features,
        trained=before.statistics[TABLE],
        served=now.statistics[TABLE],
        rebinned=now.rebinned.get(TABLE, {}),
        rows=(before.rows[TABLE], now.rows[TABLE]),
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
        "judged": findings.judged,
        "not_judged": findings.not_judged,
    }
    reference = store.publish(
        "skew",
        manifest.name,
        {
            SKEW_FILE: canonical_json(body),
            "anomalies.json": canonical_json([one.to_json() for one in findings.sorted()]),
        },
        derived_from={
            "training_set": request.training_set,
            "serving": request.serving,
            "training_statistics": trained,
            "serving_statistics": served,
        },
        configuration=identity_of(request.spec),
        details={"verdict": verdict},
    )
    return SkewResult(skew=str(reference), verdict=verdict, reasons=reasons)


def _measured(
    request: SkewRequest, store: ArtifactStore, dataset: str, features: tuple[str, ...], baseline: str
) -> str:
    """Reference of the statistics of one side; of columns that are not compared no value is kept."""
    columns = {column.name for column in store.manifest(dataset).columns}
    hidden = sensitive_columns(store, request.training_set) | sensitive_columns(store, request.serving)
    wanted = MeasureRequest(
        name=Reference.parse(dataset).name,
        datasets={TABLE: dataset},
        sensitive={TABLE: tuple(columns.difference(features).union(request.spec.sensitive, hidden))},
        baseline=baseline,
        statistics=request.statistics,
    )
    return measure(wanted, store, force=request.force).statistics


def _features(details: dict[str, Any], columns: list[str], spec: SkewSpec) -> tuple[str, ...]:
    named = [*details.get("numeric", ()), *details.get("categorical", ())] or columns
    return tuple(name for name in named if name not in spec.ignore)
