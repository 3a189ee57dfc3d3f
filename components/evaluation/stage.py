"""The evaluate stage: a candidate, measured on the test part and judged by the policy."""

from typing import Any

from gatehouse.components.artifacts.canonical import canonical_json
from gatehouse.components.artifacts.stage import StageModel, stage
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.evaluation.spec import EvaluationSpec, GatePolicy
from gatehouse.errors import GatehouseError


class BaselineRequest(StageModel):
    """The data that logistic regression is fitted on."""

    training_set: str
    split: str


class BaselineResult(StageModel):
    """The baseline model: `baseline.json` holds transformation, coefficients and intercept."""

    baseline: str


class EvaluateRequest(StageModel):
    """A candidate, the champion that it must compare with (empty for none), data, measures and policy."""

    model: str
    champion: str = ""
    training_set: str
    split: str
    spec: EvaluationSpec
    policy: GatePolicy


class EvaluateResult(StageModel):
    """The evaluation, its verdict (`pass` or `refused`) with the reasons of a refusal, and the test metrics."""

    evaluation: str
    verdict: str
    reasons: tuple[str, ...]
    metrics: dict[str, float]
    champion_metrics: dict[str, float]
    baseline_metrics: dict[str, float]


class EmptyTestError(GatehouseError):
    """The test part has no rows, or a model gave no finite score."""


@stage("fit_baseline", distributions=("scikit-learn", "scipy", "numpy", "pyarrow"))
def fit_baseline(request: BaselineRequest, store: ArtifactStore) -> BaselineResult:
    """Fit logistic regression on the train part; runs again only when the data changes."""
    from gatehouse.components.evaluation.baseline import design, fit
    from gatehouse.components.training.job import labels_of, read_part
    from gatehouse.components.training.transformation import Transformation

    manifest = store.manifest(request.training_set)
    table = read_part(store, request.training_set, request.split, "train")
    transformation = Transformation.fit(table, manifest.details["numeric"], manifest.details["categorical"])
    coefficients, intercept = fit(design(transformation, table), labels_of(table, manifest))
    body = {
        "transformation": transformation.to_json(),
        "coefficients": [float(value) for value in coefficients],
        "intercept": intercept,
    }
    reference = store.publish(
        "baselines",
        manifest.name,
        {"baseline.json": canonical_json(body)},
        derived_from={"training_set": request.training_set, "split": request.split},
    )
    return BaselineResult(baseline=str(reference))


@stage("evaluate", distributions=("torch", "numpy", "safetensors", "pyarrow", "scipy"))
def evaluate(request: EvaluateRequest, store: ArtifactStore) -> EvaluateResult:
    """Measure the candidate on the test part beside champion and baseline, and judge it.

    The artifact holds `metrics.json`, `slices.json`, `curves.json`, `verdict.json`, `predictions.parquet` (row, score)
    and `report.html`, whatever the verdict is.

    Raises:
        SelfComparisonError: if the champion is the candidate.
        EmptyTestError: if there is nothing to score, or a score is not finite.
        FeatureError: if a model's features are not in the training set.
    """
    from dataclasses import asdict

    from gatehouse.components.evaluation.comparison import SelfComparisonError, compare, measure
    from gatehouse.components.evaluation.gate import judge
    from gatehouse.components.evaluation.report import evaluation_report
    from gatehouse.components.evaluation.slices import slice_metrics
    from gatehouse.components.training.job import labels_of, read_part

    if request.champion == request.model:
        raise SelfComparisonError(
            f"{request.model} is both candidate and champion: a model compared with itself always passes. Resolve the "
            "champion other than the candidate."
        )
    spec, policy = request.spec, request.policy
    baseline = fit_baseline(BaselineRequest(training_set=request.training_set, split=request.split), store).baseline
    table = read_part(store, request.training_set, request.split, "test")
    labels = labels_of(table, store.manifest(request.training_set))
    scores = {"candidate": _score(store, request.model, table), "baseline": _score_baseline(store, baseline, table)}
    if request.champion:
        scores["champion"] = _score(store, request.champion, table)
    metrics = {name: measure(labels, each) for name, each in scores.items()}
    comparison = (
        compare(labels, scores["candidate"], scores["champion"], policy.champion, spec.bootstrap_samples, spec.seed)
        if request.champion
        else None
    )
    slices = slice_metrics(table, labels, scores["candidate"], spec)
    judged = {entry.name: entry.roc_auc for entry in slices if entry.judged}
    rules = judge(policy, metrics["candidate"], metrics["baseline"], comparison, judged)
    verdict = "pass" if all(rule.holds for rule in rules) else "refused"
    reasons = tuple(str(rule) for rule in rules if not rule.holds)
    files = {
        "metrics.json": canonical_json(metrics),
        "slices.json": canonical_json([asdict(entry) for entry in slices]),
        "curves.json": canonical_json(_curves(labels, scores["candidate"])),
        "verdict.json": canonical_json({"verdict": verdict, "rules": [asdict(rule) for rule in rules]}),
        "report.html": evaluation_report(request, verdict, rules, labels, scores, metrics, slices),
    }
    reference = _publish(request, store, baseline, files, scores["candidate"], verdict)
    return EvaluateResult(
        evaluation=reference,
        verdict=verdict,
        reasons=reasons,
        metrics=metrics["candidate"],
        champion_metrics=metrics.get("champion", {}),
        baseline_metrics=metrics["baseline"],
    )


def _publish(
    request: EvaluateRequest, store: ArtifactStore, baseline: str, files: dict[str, str], scores: Any, verdict: str
) -> str:
    import pyarrow as pa
    import pyarrow.parquet as pq

    inputs = {"model": request.model, "training_set": request.training_set, "split": request.split, "baseline": baseline}
    if request.champion:
        inputs["champion"] = request.champion
    with store.workspace() as workspace:
        rows = pq.read_table(store.path(request.split, "test.parquet"))["row"]
        predictions = workspace / "predictions.parquet"
        pq.write_table(pa.table({"row": rows, "score": scores}), predictions, compression="zstd")
        return str(
            store.publish(
                "evaluations",
                store.manifest(request.model).name,
                {**files, "predictions.parquet": predictions},
                derived_from=inputs,
                configuration={
                    "spec": request.spec.model_dump(mode="json"),
                    "policy": request.policy.model_dump(mode="json"),
                },
                details={"verdict": verdict},
            )
        )


def _score(store: ArtifactStore, model: str, table: Any) -> Any:
    from gatehouse.components.training.predictor import Predictor

    return _finite(model, Predictor.load(store, model).predict(table))


def _score_baseline(store: ArtifactStore, baseline: str, table: Any) -> Any:
    import numpy as np

    from gatehouse.components.evaluation.baseline import design, predict
    from gatehouse.components.training.transformation import Transformation

    body = store.read_json(baseline, "baseline.json")
    matrix = design(Transformation.from_json(body["transformation"]), table)
    return _finite(baseline, predict(matrix, np.array(body["coefficients"]), body["intercept"]))


def _finite(model: str, scores: Any) -> Any:
    import numpy as np

    wrong = int((~np.isfinite(scores)).sum())
    if wrong or len(scores) == 0:
        raise EmptyTestError(f"{model}: {wrong} of {len(scores)} test rows have no finite score; expected one for every row.")
    return scores


def _curves(labels: Any, scores: Any) -> dict[str, Any]:
    from gatehouse.components.evaluation.report import thin
    from gatehouse.components.tracking.metrics import precision_recall_curve, roc_curve

    false_positive, true_positive, thresholds = roc_curve(labels, scores)
    recall, precision = precision_recall_curve(labels, scores)
    return {
        "roc": [list(point) for point in thin(list(zip(false_positive, true_positive, thresholds, strict=True)))],
        "precision_recall": [list(point) for point in thin(list(zip(recall, precision, strict=True)))],
    }


def show(result: EvaluateResult, store: ArtifactStore, metrics: Any, roc: Any, report: Any, summary: Any) -> None:
    """Fill KFP's typed outputs (Metrics, ClassificationMetrics, HTML, Markdown) from an evaluation."""
    for name, value in result.metrics.items():
        metrics.log_metric(name, value)
    rates = store.read_json(result.evaluation, "curves.json")["roc"]
    roc.log_roc_curve([point[0] for point in rates], [point[1] for point in rates], [point[2] for point in rates])
    store.copy(result.evaluation, "report.html", report.path)
    report.metadata["reference"] = store.address_of(result.evaluation)
    lines = [f"# {result.verdict}", *(f"- {reason}" for reason in result.reasons), ""]
    lines += [f"| {name} | {value:.4f} |" for name, value in result.metrics.items()]
    with open(summary.path, "w", encoding="utf-8") as stream:
        stream.write("\n".join(lines) + "\n")
