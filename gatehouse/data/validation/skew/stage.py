"""The skew stage: compares the features that a model is served with its training set."""

from gatehouse.data.statistics.measurement import measurement
from gatehouse.data.statistics.stage import MeasureRequest, measure
from gatehouse.data.validation.sensitivity import sensitive_columns
from gatehouse.data.validation.skew.judge import SkewSpec
from gatehouse.errors import ConfigurationError
from gatehouse.store.canonical import canonical_json
from gatehouse.store.identity import identity_of, operational
from gatehouse.store.reference import Reference
from gatehouse.store.stage import StageModel, stage
from gatehouse.store.store import ArtifactStore

TABLE = "features"
SKEW_FILE = "skew.json"


class SkewRequest(StageModel):
    """A training set, and logged features to compare with it.

    Attributes:
        serving: Reference of a dataset of logged features with the same column names.
        force: Measure again even if the memo has the statistics; it changes no result.
    """

    training_set: str
    serving: str
    spec: SkewSpec = SkewSpec()
    force: str = operational("")


class SkewResult(StageModel):
    """The comparison, its verdict, and the reasons: `pass`, `fail`, or `unjudged` for too few rows or no features."""

    skew: str
    verdict: str
    reasons: tuple[str, ...]


@stage(
    "skew",
    title="Compare serving with training",
    pages={"skew": "gatehouse.data.validation.skew.report:page"},
)
def skew(request: SkewRequest, store: ArtifactStore) -> SkewResult:
    """Compare feature by feature, in bins of the training set; skew is a verdict, not an error.

    The artifact holds `skew.json` and `anomalies.json`. The features that the training set's manifest names are
    compared, or all its columns if it names none.

    Raises:
        ConfigurationError: if one of the two is no table.
    """
    from gatehouse.data.validation.anomalies import Findings
    from gatehouse.data.validation.skew.judge import compared, judged

    manifest = store.manifest(request.training_set)
    for side in (manifest, store.manifest(request.serving)):
        if not side.columns:
            raise ConfigurationError(f"{side.reference}: expected a table, such as a training set, found none in it.")
    details = manifest.details
    named = [*details.get("numeric", ()), *details.get("categorical", ())] or [
        column.name for column in manifest.columns
    ]
    features = tuple(name for name in named if name not in request.spec.ignore)
    trained = _measured(request, store, request.training_set, features, "")
    served = _measured(request, store, request.serving, features, trained)
    before, now = measurement(store, trained), measurement(store, served)
    sides, rebinned = (before.statistics[TABLE], now.statistics[TABLE]), now.rebinned.get(TABLE, {})
    rows = (before.rows[TABLE], now.rows[TABLE])
    bodies = compared(features, *sides, rebinned, rows)
    if few := rows[0] == 0 or rows[1] < request.spec.min_rows:
        expected = f"expected at least {request.spec.min_rows:,} logged rows and a training set"
        observed = f"found {rows[1]:,} logged and {rows[0]:,} trained rows"
        findings = Findings(not_judged=[f"rows: {expected}, {observed}"])
    else:
        findings = judged(request.spec, features, bodies, *sides)
    verdict, reasons = findings.verdict, findings.reasons()
    if (few or all(body["psi"] is None for body in bodies)) and verdict == "pass":
        verdict, reasons = "unjudged", tuple(findings.not_judged[:1]) or ("no feature is compared",)
    body = {
        "verdict": verdict,
        "reasons": reasons,
        "rows": {"training": rows[0], "serving": rows[1]},
        "features": bodies,
        "judged": findings.judged,
        "not_judged": findings.not_judged,
    }
    reference = store.publish(
        "skew",
        manifest.name,
        {
            SKEW_FILE: canonical_json(body),
            "anomalies.json": canonical_json([anomaly.to_json() for anomaly in findings.sorted()]),
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
    """Reference of the statistics of one side, without values of columns that are not compared."""
    columns = {column.name for column in store.manifest(dataset).columns}
    hidden = sensitive_columns(store, request.training_set) | sensitive_columns(store, request.serving)
    measuring = MeasureRequest(
        name=Reference.parse(dataset).name,
        datasets={TABLE: dataset},
        sensitive={TABLE: tuple(columns.difference(features).union(request.spec.sensitive, hidden))},
        baseline=baseline,
    )
    return measure(measuring, store, force=request.force).statistics
