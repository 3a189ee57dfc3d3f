"""The evaluate stage: a candidate, measured on the test part and judged by the policy."""

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from gatehouse.components.artifacts.canonical import canonical_json
from gatehouse.components.artifacts.declaration import Resources
from gatehouse.components.artifacts.reference import Reference
from gatehouse.components.artifacts.stage import StageModel, stage
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.evaluation.spec import EvaluationSpec, GatePolicy
from gatehouse.errors import GatehouseError

if TYPE_CHECKING:
    from pathlib import Path

    from gatehouse.components.evaluation.parts import Part
    from gatehouse.components.evaluation.report import Evaluation

CANDIDATE, CHAMPION, BASELINE, TREES = "candidate", "champion", "baseline", "boosted trees"


class BaselineRequest(StageModel):
    """The data that logistic regression, and on request boosted trees, are fitted on."""

    training_set: str
    split: str
    boosted_trees: bool = False


class BaselineResult(StageModel):
    """The baseline model: `baseline.json` holds what it does to each column, coefficients and intercept.

    Boosted trees stand beside it, in `trees.ubj`, with their columns in `trees.json`.
    """

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
    """The evaluation, its verdict with the reasons of a refusal, and the test metrics."""

    evaluation: str
    verdict: Literal["pass", "refused"]
    reasons: tuple[str, ...]
    metrics: dict[str, float]
    champion_metrics: dict[str, float]
    baseline_metrics: dict[str, float]
    boosted_trees_metrics: dict[str, float] = Field(default_factory=dict)


class SelfComparisonError(GatehouseError):
    """A candidate was about to be judged against itself."""


class ScoringError(GatehouseError):
    """A model cannot score the test rows, or gave a score that is no probability."""


@stage("fit_baseline", title="Fit the baseline")
def fit_baseline(request: BaselineRequest, store: ArtifactStore) -> BaselineResult:
    """Fit logistic regression, and trees where they are wanted, on the train part; again only when the data changes.

    Raises:
        UnusablePartError: if the train part is empty or has one class only.
    """
    from gatehouse.components.evaluation.baseline import Baseline
    from gatehouse.components.evaluation.parts import read_part

    manifest = store.manifest(request.training_set)
    part = read_part(store, request.training_set, request.split, "train")
    fitted = Baseline.fit(part.table, part.labels, manifest.details["numeric"], manifest.details["categorical"])
    files: dict[str, Path | bytes | str] = {"baseline.json": canonical_json(fitted.to_json())}
    if request.boosted_trees:
        from gatehouse.components.evaluation.boosted_trees import BoostedTrees

        grown = BoostedTrees.fit(part.table, part.labels, manifest.details["numeric"], manifest.details["categorical"])
        files |= {"trees.json": canonical_json(grown.to_json()), "trees.ubj": grown.trees}
    reference = store.publish(
        "baselines",
        manifest.name,
        files,
        derived_from={"training_set": request.training_set, "split": request.split},
    )
    return BaselineResult(baseline=str(reference))


@stage("evaluate", title="Evaluate against the champion", resources=Resources(cpu="2", memory="4G"))
def evaluate(request: EvaluateRequest, store: ArtifactStore) -> EvaluateResult:
    """Measure the candidate on the test part beside champion and baseline, and judge it.

    The artifact holds `metrics.json`, `slices.json`, `curves.json`, `verdict.json`, `predictions.parquet` (row, score)
    and `report.html`, whatever the verdict is. Latency is recorded beside it, under `measurements/`.

    Raises:
        SelfComparisonError: if the champion is the candidate.
        UnusablePartError: if the test part is empty or has one class only.
        ScoringError: if a model cannot score the test rows.
    """
    from gatehouse.components.evaluation.latency import measure_latency
    from gatehouse.components.evaluation.parts import read_part
    from gatehouse.components.training.scoring.predictor import Predictor

    if request.champion == request.model:
        raise SelfComparisonError(
            f"{request.model} is both candidate and champion: a model compared with itself always passes. Expected the "
            "champion other than the candidate; `resolve` finds it."
        )
    trees = request.spec.boosted_trees
    wanted = BaselineRequest(training_set=request.training_set, split=request.split, boosted_trees=trees)
    baseline = fit_baseline(wanted, store).baseline
    part = read_part(store, request.training_set, request.split, "test")
    scores = {CANDIDATE: _score(store, CANDIDATE, request.model, part)}
    if request.champion:
        scores[CHAMPION] = _score(store, CHAMPION, request.champion, part)
    scores[BASELINE] = _score(store, BASELINE, baseline, part)
    if trees:
        scores[TREES] = _score(store, TREES, baseline, part)
    found = judged(request, part, scores)
    reference = _publish(request, store, baseline, part, found)
    latency = measure_latency(Predictor.load(store, request.model).predict, part.table)
    store.append(f"measurements/{request.model}", {"stage": "evaluate", "latency": latency})
    return EvaluateResult(
        evaluation=reference,
        verdict="pass" if found.verdict == "pass" else "refused",
        reasons=tuple(str(rule) for rule in found.rules if not rule.holds),
        metrics=found.metrics[CANDIDATE],
        champion_metrics=found.metrics.get(CHAMPION, {}),
        baseline_metrics=found.metrics[BASELINE],
        boosted_trees_metrics=found.metrics.get(TREES, {}),
    )


def judged(request: EvaluateRequest, part: "Part", scores: dict[str, Any]) -> "Evaluation":
    """Measure and judge scores that are there already.

    Args:
        request: Holds measures and policy.
        part: The test rows.
        scores: Probabilities of `candidate`, `baseline` and, where there are such, `champion` and `boosted trees`, each
            of shape (rows,).
    """
    from gatehouse.components.evaluation.comparison import compare, measure
    from gatehouse.components.evaluation.gate import judge
    from gatehouse.components.evaluation.report import Evaluation
    from gatehouse.components.evaluation.slices import slice_metrics

    spec, policy, labels = request.spec, request.policy, part.labels
    metrics = {name: measure(labels, each) for name, each in scores.items()}
    comparison = None
    if CHAMPION in scores:
        comparison = compare(
            labels, scores[CANDIDATE], scores[CHAMPION], policy.champion, spec.bootstrap_samples, spec.seed
        )
    slices = tuple(slice_metrics(part.table, labels, scores[CANDIDATE], spec, scores.get(CHAMPION)))
    areas = {entry.name: entry.roc_auc for entry in slices if entry.judged and entry.roc_auc is not None}
    rules = judge(policy, metrics[CANDIDATE], metrics[BASELINE], comparison, areas)
    return Evaluation(labels, scores, metrics, comparison, slices, rules)


def _score(store: ArtifactStore, role: str, reference: str, part: "Part") -> Any:
    import numpy as np

    from gatehouse.components.evaluation.baseline import Baseline
    from gatehouse.components.training.scoring.predictor import Predictor

    try:
        if role == BASELINE:
            scores = Baseline.from_json(store.read_json(reference, "baseline.json")).predict(part.table)
        elif role == TREES:
            from gatehouse.components.evaluation.boosted_trees import BoostedTrees

            grown = store.path(reference, "trees.ubj").read_bytes()
            scores = BoostedTrees.from_json(store.read_json(reference, "trees.json"), grown).predict(part.table)
        else:
            scores = Predictor.load(store, reference).predict(part.table)
    except GatehouseError as error:
        advice = "Keep them in the feature service until another champion is promoted." if role == CHAMPION else ""
        raise ScoringError(f"The {role} {reference} cannot score the test rows. {error} {advice}".rstrip()) from error
    probable = np.isfinite(scores) & (scores >= 0) & (scores <= 1)
    if scores.shape != part.rows.shape or not probable.all():
        wrong = np.flatnonzero(~probable)
        where = f", the first in row {part.rows[wrong[0]]} of the training set" if len(wrong) else ""
        raise ScoringError(
            f"The {role} {reference} gave {scores.size} scores for {part.rows.size} test rows, {len(wrong)} of them no "
            f"probability{where}; expected a number from 0 to 1 for every row. Train it with a lower learning rate."
        )
    return scores


def _publish(request: EvaluateRequest, store: ArtifactStore, baseline: str, part: "Part", found: "Evaluation") -> str:
    from dataclasses import asdict

    import pyarrow as pa
    import pyarrow.parquet as pq

    from gatehouse.components.evaluation.curves import curves_of
    from gatehouse.components.evaluation.report import evaluation_report

    inputs = {"model": request.model, "training_set": request.training_set, "split": request.split}
    inputs["baseline"] = baseline
    if request.champion:
        inputs["champion"] = request.champion
    comparison = asdict(found.comparison) if found.comparison else None
    rules = [asdict(rule) for rule in found.rules]
    curves = {name: curves_of(found.labels, each, request.spec.calibration_bins) for name, each in found.scores.items()}
    with store.workspace() as workspace:
        predictions = workspace / "predictions.parquet"
        pq.write_table(pa.table({"row": part.rows, "score": found.scores[CANDIDATE]}), predictions, compression="zstd")
        files: dict[str, Path | bytes | str] = {
            "metrics.json": canonical_json(found.metrics),
            "slices.json": canonical_json([asdict(entry) for entry in found.slices]),
            "curves.json": canonical_json(curves),
            "verdict.json": canonical_json({"verdict": found.verdict, "rules": rules, "comparison": comparison}),
            "report.html": evaluation_report(request, found, curves),
            "predictions.parquet": predictions,
        }
        published = store.publish(
            "evaluations",
            Reference.parse(request.model).name,
            files,
            rows_per_file={"predictions.parquet": len(part.rows)},
            derived_from=inputs,
            configuration={
                "spec": request.spec.model_dump(mode="json"),
                "policy": request.policy.model_dump(mode="json"),
            },
            details={"verdict": found.verdict},
        )
    return str(published)
