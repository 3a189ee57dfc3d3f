"""The evaluate stage: a candidate, measured on the test part and judged by the policy."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from gatehouse.errors import ConfigurationError, GatehouseError
from gatehouse.evaluation.baseline.stage import BaselineRequest, fit_baseline
from gatehouse.evaluation.spec import EvaluationSpec, GatePolicy
from gatehouse.store.canonical import canonical_json
from gatehouse.store.identity import identity_of
from gatehouse.store.reference import Reference
from gatehouse.store.stage import Resources, StageModel, stage
from gatehouse.store.store import ArtifactStore
from gatehouse.training.learned import learned_parts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gatehouse.data.splitting.parts import Part
    from gatehouse.evaluation.bootstrap import Units
    from gatehouse.evaluation.gate import Cost, DataCheck
    from gatehouse.evaluation.judgement import Judgement
    from gatehouse.metrics.catalogue.metric import Predictions
    from gatehouse.metrics.tasks.task import Task
    from gatehouse.training.scoring.predictor import Predictor

_DATA_CHECKS = ("validation", "leakage", "split_checks")


class EvaluateRequest(StageModel):
    """A candidate, the champion that it must compare with (empty for none), data, measures and policy.

    The checks of the data are references too: the contract's (`validation`), those for leakage and of the split. Each
    must have passed, and its warnings go on the candidate's record; empty where there is none. So must the candidate's
    `integration` suite.
    """

    model: str
    champion: str = ""
    training_set: str
    split: str
    validation: str = ""
    leakage: str = ""
    split_checks: str = ""
    integration: str = ""
    spec: EvaluationSpec
    policy: GatePolicy


class EvaluateResult(StageModel):
    """The evaluation, its verdict with the reasons where it is no pass, warnings, test metrics; fairness in a line."""

    evaluation: str
    verdict: Literal["pass", "refused", "inconclusive"]
    reasons: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    metrics: dict[str, float]
    champion_metrics: dict[str, float]
    baseline_metrics: dict[str, float]
    boosted_trees_metrics: dict[str, float] = Field(default_factory=dict)
    summary: str = ""
    passing: bool = Field(False, description="What could not be read of the lineage may be back at the next request.")

    @property
    def provisional(self) -> bool:
        """It is evaluated again when that is requested again."""
        return self.passing


class SelfComparisonError(GatehouseError):
    """A candidate was about to be judged against itself."""

    permanent = True


class ScoringError(GatehouseError):
    """A model cannot score the test rows, or gave predictions that its task does not have."""


@stage(
    "evaluate",
    title="Evaluate against the champion",
    resources=Resources(cpu="2", memory="4G"),
    pages={"evaluations": "gatehouse.evaluation.report:page"},
    task=("resolve", "evaluate"),
)
def evaluate(request: EvaluateRequest, store: ArtifactStore) -> EvaluateResult:
    """Measure the candidate beside champion and baseline on test rows that neither was fitted on, and judge it.

    The artifact holds `metrics.json`, `uncertainty.json`, `slices.json`, `found_slices.json`, `curves.json` and
    `verdict.json`, whatever the verdict is, and `fairness.json` where a column is protected. What the candidate costs
    is recorded beside it, under `measurements/`; where the policy bounds it, in `verdict.json` too.

    Raises:
        SelfComparisonError: if the champion is the candidate.
        ConfigurationError: if candidate, champion and label are of different tasks, or the policy names metrics that
            the task does not have, or slices or resamples are of columns that are not there.
        UnusablePartError: if the test part cannot be judged on.
        ScoringError: if a model cannot score the test rows.
    """
    from gatehouse.data.splitting.parts import read_part
    from gatehouse.evaluation.judgement import BASELINE, CANDIDATE, CHAMPION, CONSTANT, TREES, judged
    from gatehouse.evaluation.origins import origins_of
    from gatehouse.evaluation.seen import unseen_part
    from gatehouse.evaluation.suites import suite_of
    from gatehouse.training.scoring.predictor import Predictor

    if request.champion == request.model:
        raise SelfComparisonError(
            f"{request.model} is both candidate and champion: a model compared with itself always passes. Expected the "
            "champion other than the candidate; `resolve` finds it."
        )
    candidate = Predictor.load(store, request.model)
    task, trees = candidate.task, request.spec.boosted_trees
    policy = _fitting_policy(task, request, store)
    data = {"training_set": request.training_set, "split": request.split}
    parts = learned_parts(store.manifest(request.model).configuration)
    baseline = fit_baseline(BaselineRequest(**data, task=task.name, boosted_trees=trees, parts=parts), store).baseline
    models = {CANDIDATE: request.model, CHAMPION: request.champion}
    part, seen = unseen_part(store, read_part(store, **data, name="test", task=task), **data, models=models, task=task)
    scored = models | {BASELINE: baseline, CONSTANT: baseline, TREES: baseline if trees else ""}
    predictions = {
        role: _predictions(store, role, reference, part, task) for role, reference in scored.items() if reference
    }
    details = store.manifest(request.training_set).details
    units = _units(request, store, part, details)
    features = {name: kind == "numeric" for kind in ("numeric", "categorical") for name in details.get(kind, ())}
    origins = origins_of(store, request.model, **data, split_checks=request.split_checks)
    checks, cost = _data_checks(request, store), _cost(request, store, candidate, part)
    suite = suite_of(store, request.integration, request.model, request.split, candidate, part)
    evidence = (part, predictions, units, features, checks, cost, seen, origins, suite)
    found = judged(task, request.spec, request.policy, store.manifest(request.model), *evidence)
    reference = _publish(request, store, policy, baseline, task, part, predictions, found, checks, cost)
    return EvaluateResult(
        evaluation=reference,
        verdict=found.verdict,
        reasons=tuple(str(rule) for rule in found.rules if rule.refuses),
        warnings=found.warnings,
        metrics=found.metrics[CANDIDATE],
        champion_metrics=found.metrics.get(CHAMPION, {}),
        baseline_metrics=found.metrics[BASELINE],
        boosted_trees_metrics=found.metrics.get(TREES, {}),
        summary="; ".join(map(str, found.fairness)),
        passing=seen.passing or origins.passing,
    )


def _units(request: EvaluateRequest, store: ArtifactStore, part: "Part", details: "Mapping[str, Any]") -> "Units":
    """What the bootstrap draws: what the project names, or what the split keeps together, so that no copy counts."""
    from gatehouse.evaluation.bootstrap import Units

    if request.spec.resample_by:
        return Units.of(part, request.spec.resample_by, details.get("decision_time", ""))
    split = store.manifest(request.split).configuration
    together = {"group": split.get("columns", ()), "entity": details.get("entity_keys", ())}
    return Units.of_split(part, tuple(together.get(split.get("strategy", ""), ())))


def _cost(request: EvaluateRequest, store: ArtifactStore, candidate: "Predictor", part: "Part") -> "Cost":
    """Measure the candidate, and keep that beside it; memory, which takes a process of its own, where it is bounded."""
    import pyarrow.parquet as pq

    from gatehouse.evaluation.footprint import measured_memory
    from gatehouse.evaluation.gate import Cost
    from gatehouse.tracking.latency import measure_latency

    latency = measure_latency(candidate.predict, part.table)
    size = sum(file.bytes for file in store.manifest(request.model).files)
    told: dict[str, Any] = {"stage": "evaluate", "latency": latency, "size_bytes": size}
    if request.policy.cost.memory_mb is not None:
        with store.workspace() as workspace:
            rows = workspace / "rows.parquet"
            pq.write_table(part.table.slice(0, latency["batch"]["rows"]), rows)
            told["memory_mb"] = measured_memory(store, request.model, rows)
    place = f"measurements/{request.model}"
    number = store.append(place, told)
    return Cost.of(told, f"{place}/{number:06d}.json")


def _fitting_policy(task: "Task", request: EvaluateRequest, store: ArtifactStore) -> GatePolicy:
    """The policy, resolved for the candidate's task; a label, or a policy, of another task is refused."""
    from gatehouse.metrics.tasks.judging import judging_of

    policy = request.policy.resolved(judging_of(task))
    declared = store.manifest(request.training_set).details.get("task", task.name)
    if declared != task.name:
        raise ConfigurationError(
            f"The candidate was trained for the task {task.name}, but the label of {request.training_set} is declared "
            f"for the task {declared}. Correct `training.loss.kind`, or the LabelView's task."
        )
    if problems := list(policy.problems(task)):
        raise ConfigurationError(f"The policy does not fit the task: {'; '.join(problems)}.")
    return policy


def _data_checks(request: EvaluateRequest, store: ArtifactStore) -> "tuple[DataCheck, ...]":
    """Verdicts and warnings of the checks of the data, read off their artifacts.

    Raises:
        ConfigurationError: if one of them looked at other data than the training set and its snapshot.
    """
    from gatehouse.evaluation.gate import DataCheck
    from gatehouse.evaluation.integration.spec import NOT_CHECKED

    found = []
    snapshot = store.manifest(request.training_set).derived_from.get("snapshot", "")
    for name in _DATA_CHECKS:
        if not (reference := getattr(request, name)):
            found.append(DataCheck(name.replace("_", " "), NOT_CHECKED, ("was not given",)))
            continue
        manifest = store.manifest(reference)
        looked_at, wanted = ("snapshot", snapshot) if name == "validation" else ("training_set", request.training_set)
        if manifest.derived_from.get(looked_at) != wanted:
            raise ConfigurationError(
                f"{name}: expected a check of {wanted or 'the snapshot that the training set names'}, found "
                f"{reference}, a check of {manifest.derived_from.get(looked_at, 'other data')}. Give the check of this "
                "data."
            )
        details = manifest.details
        found.append(DataCheck(name.replace("_", " "), details["verdict"], tuple(details["warnings"])))
    return tuple(found)


def _predictions(store: ArtifactStore, role: str, reference: str, part: "Part", task: "Task") -> "Predictions":
    """What the model of a role says of the test rows, in the forms that metrics read."""
    import numpy as np

    from gatehouse.evaluation.classes import by_class
    from gatehouse.evaluation.judgement import CHAMPION
    from gatehouse.metrics.tasks.outputs import EXPECTED, are_usable

    try:
        predicted, threshold = _predicted(store, role, reference, part, task)
    except GatehouseError as error:
        advice = "Keep them in the feature service until another champion is promoted." if role == CHAMPION else ""
        raise ScoringError(f"The {role} {reference} cannot score the test rows. {error} {advice}".rstrip()) from error
    right = are_usable(predicted, task.output)
    if len(predicted) != len(part.rows) or not right.all():
        wrong = np.flatnonzero(~right)
        where = f", the first in row {part.rows[wrong[0]]} of the training set" if len(wrong) else ""
        raise ScoringError(
            f"The {role} {reference} gave {len(predicted)} predictions for {len(part.rows)} test rows, {len(wrong)} of "
            f"them wrong{where}; expected {EXPECTED[task.output]} for every row. Train it with a lower learning rate."
        )
    if predicted.ndim == 2:
        learned = store.manifest(reference).derived_from.get("training_set", "")
        classes = store.manifest(learned).details.get("classes", ()) if learned else part.classes
        predicted = by_class(predicted, classes, part.classes, int(part.labels.max()) + 1)
    read = task.read(predicted, part.groups)
    return read if threshold is None else read.decided(threshold)


def _predicted(
    store: ArtifactStore, role: str, reference: str, part: "Part", task: "Task"
) -> "tuple[Any, float | None]":
    """Predictions, and the threshold that travels with a calibrated model."""
    from gatehouse.evaluation.judgement import BASELINE, CONSTANT, TREES
    from gatehouse.training.scoring.predictor import Predictor

    if role in (BASELINE, CONSTANT):
        from gatehouse.data.statistics.linear_model import LinearModel

        return LinearModel.from_json(store.read_json(reference, f"{role}.json")).predict(part.table), None
    if role == TREES:
        from gatehouse.evaluation.baseline.boosted_trees import BoostedTrees

        grown = store.path(reference, "trees.ubj").read_bytes()
        return BoostedTrees.from_json(store.read_json(reference, "trees.json"), grown).predict(part.table), None
    model = Predictor.load(store, reference)
    if model.task != task:
        raise ConfigurationError(
            f"Its task is {model.task.name}, expected {task.name}. Register models of one task under one name."
        )
    return model.predict(part.table), model.calibration.threshold if model.calibration else None


def _publish(
    request: EvaluateRequest,
    store: ArtifactStore,
    policy: GatePolicy,
    baseline: str,
    task: "Task",
    part: "Part",
    predictions: "dict[str, Predictions]",
    found: "Judgement",
    data_checks: "tuple[DataCheck, ...]",
    cost: "Cost",
) -> str:
    from gatehouse.evaluation.curves import curves_of
    from gatehouse.evaluation.group_measures import FAIRNESS
    from gatehouse.evaluation.judgement import CONSTANT
    from gatehouse.metrics.tasks.judging import judging_of
    from gatehouse.metrics.tasks.level import level_of

    names, bins, level = judging_of(task).curves, request.spec.calibration_bins, level_of(task)
    curves = {role: curves_of(names, part.labels, each, bins) for role, each in predictions.items() if role != CONSTANT}
    verdict = _verdict(found, policy, data_checks)
    if policy.cost.measures:  # Else numbers that differ each time would stand where nothing needs them.
        verdict["cost"] = asdict(cost)
    if request.integration:
        verdict["integration"] = asdict(found.integration)
    inputs = {"model": request.model, "champion": request.champion, "baseline": baseline}
    inputs |= {name: getattr(request, name) for name in ("training_set", "split", *_DATA_CHECKS, "integration")}
    published = store.publish(
        "evaluations",
        Reference.parse(request.model).name,
        {
            "metrics.json": canonical_json(found.metrics),
            "uncertainty.json": canonical_json(asdict(found.uncertainty)),
            "slices.json": canonical_json([asdict(entry) for entry in found.slices]),
            "found_slices.json": canonical_json([asdict(entry) for entry in found.found]),
            "curves.json": canonical_json(curves),
            "verdict.json": canonical_json(verdict),
        }
        | ({FAIRNESS: canonical_json([asdict(each) for each in found.fairness])} if found.fairness else {}),
        derived_from={role: reference for role, reference in inputs.items() if reference},
        configuration={"spec": identity_of(request.spec), "policy": identity_of(request.policy)},
        details={
            "verdict": found.verdict,
            "task": task.name,
            "rows": len(part.rows),
            "level": {"title": level.title, "is_share": level.is_share, "value": level.of(part.labels, part.labels)[0]},
        },
    )
    return str(published)


def _verdict(found: "Judgement", policy: GatePolicy, data_checks: "tuple[DataCheck, ...]") -> dict[str, Any]:
    """What is judged, by which policy, and what for, as JSON."""
    return {
        "verdict": found.verdict,
        "rules": [asdict(rule) for rule in found.rules],
        "guessing": asdict(found.guessing) if found.guessing else None,
        "comparison": asdict(found.comparison) if found.comparison else None,
        "comparisons": {
            name: asdict(each) | {"smallest_shown": each.smallest_shown(policy.champion.confidence)}
            for name, each in found.comparisons.items()
        },
        "seen": asdict(found.seen) if found.seen else None,
        "policy": identity_of(policy),
        "warnings": [*found.warnings, *(f"{each.name}: {text}" for each in data_checks for text in each.warnings)],
    }
