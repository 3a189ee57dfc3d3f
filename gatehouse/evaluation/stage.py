"""The stage that measures a model on the test part of its split, and judges it by the policy."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gatehouse.errors import ConfigurationError, GatehouseError
from gatehouse.evaluation.baseline_stage import BaselineRequest, fit_baseline
from gatehouse.evaluation.result import EvaluateResult, require_usable
from gatehouse.evaluation.spec import EvaluationSpec, GatePolicy, own_names, require_fit
from gatehouse.metrics.judging import profile_of
from gatehouse.metrics.lazy_numpy import np
from gatehouse.metrics.metric import Array, Predictions
from gatehouse.metrics.tasks import Task
from gatehouse.store.builder_code import builder_code
from gatehouse.store.reference import Reference
from gatehouse.store.stage import StageModel, stage
from gatehouse.store.store import ArtifactStore
from gatehouse.training.model_spec import learned_parts

if TYPE_CHECKING:
    from gatehouse.data.splitting.parts import Part
    from gatehouse.evaluation.bootstrap import Units


class EvaluateRequest(StageModel):
    """A candidate, the champion (empty for none), the split whose test part is judged on, measures and policy.

    `floor` is the best champion so far, with which the candidate is compared too; empty if that is the champion.
    `validation`, `leakage`, `split_checks` and `integration` are references of checks, empty for those not made.
    """

    model: str
    champion: str = ""
    floor: str = ""
    split: str
    validation: str = ""
    leakage: str = ""
    split_checks: str = ""
    integration: str = ""
    spec: EvaluationSpec
    policy: GatePolicy


class SelfComparisonError(GatehouseError):
    """The candidate is the champion."""

    permanent = True


@stage(
    "evaluate",
    title="Evaluate against the champion",
    pages={"evaluations": "gatehouse.evaluation.report:page"},
    outside=lambda request: builder_code(*own_names(request.spec, request.policy)),
)
def evaluate(request: EvaluateRequest, store: ArtifactStore) -> EvaluateResult:
    """Measure the candidate beside champion and baseline on test rows that none was fitted on, and judge it.

    The artifact holds `metrics.json`, `uncertainty.json`, `slices.json`, `curves.json` and `verdict.json`, whatever the
    verdict is, and `fairness.json` if a column is protected. The candidate's cost is recorded beside it, under
    `measurements/`; if the policy bounds it, also in `verdict.json`.

    Raises:
        SelfComparisonError: if the champion is the candidate.
        ConfigurationError: if candidate, champion and label are of different tasks, if the policy names metrics that
            the task does not have, or if slices or resamples name columns that do not exist.
        UnusablePartError: if the test part cannot be judged on.
        ScoringError: if a model cannot score the test rows.
    """
    import pyarrow.parquet as pq

    from gatehouse.data.splitting.parts import divided_set, read_part
    from gatehouse.evaluation.evaluating import (
        BASELINE,
        CANDIDATE,
        CHAMPION,
        CONSTANT,
        FLOOR,
        CandidateFacts,
        Evaluation,
    )
    from gatehouse.evaluation.evidence import data_checks, origins_of, suite_of, unseen_part
    from gatehouse.evaluation.footprint import measured_memory
    from gatehouse.evaluation.gate import DATA_CHECKS, Cost
    from gatehouse.evaluation.importance import permuted_importance, sampled
    from gatehouse.evaluation.part_scores import ScorerRequest, part_scores
    from gatehouse.metrics.performance import BATCH, measure_latency
    from gatehouse.training.predictor import Predictor

    if request.champion == request.model:
        raise SelfComparisonError(f"{request.model} is both candidate and champion.")
    candidate = Predictor.load(store, request.model)
    training_set = divided_set(store, request.split)
    task, details = candidate.task, store.manifest(training_set).details
    declared = details.get("task", task.name)
    if declared != task.name:
        raise ConfigurationError(
            f"training.loss.kind is of the task {task.name}, but the label of {training_set} is of {declared}."
        )
    require_fit(request.spec, request.policy, task)

    data = {"training_set": training_set, "split": request.split}
    learned = learned_parts(store.manifest(request.model).configuration)
    baseline = fit_baseline(BaselineRequest(split=request.split, task=task.name, parts=learned), store).baseline
    models = {CANDIDATE: request.model, CHAMPION: request.champion, FLOOR: request.floor}
    part, seen = unseen_part(store, read_part(store, **data, name="test", task=task), **data, models=models, task=task)
    scorers = {
        role: ScorerRequest(
            model=reference, task=task.name, linear=f"{role}.json" if reference == baseline else "", role=role
        )
        for role, reference in (models | {BASELINE: baseline, CONSTANT: baseline}).items()
        if reference
    }
    predictions = {
        role: _predictions(store, role, scorers[role].model, scores, part, task)
        for role, scores in part_scores(store, training_set, part, scorers).items()
    }
    # The cost is recorded beside the model; memory, which takes a process of its own, is measured only if bounded.
    first = part.take(np.arange(min(BATCH, len(part.rows)))).table
    latency = measure_latency(candidate.predict, first)
    size = sum(file.bytes for file in store.manifest(request.model).files)
    measurement: dict[str, Any] = {"stage": "evaluate", "latency": latency, "size_bytes": size}
    if request.policy.cost.memory_mb is not None:
        with store.workspace() as workspace:
            pq.write_table(first, workspace / "rows.parquet")
            measurement["memory_mb"] = measured_memory(store, request.model, workspace / "rows.parquet")
    number = store.append(f"measurements/{request.model}", measurement)
    inputs = {"model": request.model, "champion": request.champion, "floor": request.floor, "baseline": baseline}
    inputs |= data | {name: getattr(request, name) for name in (*DATA_CHECKS, "integration")}
    sample = sampled(part, candidate.features)
    importance = permuted_importance(candidate, sample, candidate.features, units_of(request, store, sample, details))
    evaluation = Evaluation(
        name=Reference.parse(request.model).name,
        task=task,
        spec=request.spec,
        policy=request.policy,
        profile=profile_of(task),
        part=part,
        predictions=predictions,
        units=units_of(request, store, part, details),
        facts=CandidateFacts(
            model=store.manifest(request.model),
            checks=data_checks(store, request.model_dump(), training_set),
            cost=Cost.of(measurement, f"measurements/{request.model}/{number:06d}.json"),
            seen=seen,
            origins=origins_of(store, request.model, **data, split_checks=request.split_checks),
            integration=suite_of(store, request.integration, request.model, request.split, candidate, part),
        ),
        inputs=inputs,
        importance=importance,
    )
    return evaluation.published(store)


def units_of(request: EvaluateRequest, store: ArtifactStore, part: "Part", details: Mapping[str, Any]) -> "Units":
    """The units of the bootstrap: those that the project names, the groups of the split, or the entities."""
    from gatehouse.evaluation.bootstrap import Units

    if request.spec.resample_by:
        return Units.of(part, request.spec.resample_by, details.get("decision_time", ""))
    split = store.manifest(request.split).configuration
    together = split["columns"] if split.get("strategy") == "group" else details.get("entity_keys", ())
    return Units.of_split(part, tuple(together))


def _predictions(
    store: ArtifactStore, role: str, reference: str, predicted: Array, part: "Part", task: Task
) -> Predictions:
    """The scores of a model in the forms that metrics read."""
    from gatehouse.training.calibration import FILE, Calibration

    require_usable(predicted, part.rows, task, f"{role} {reference}")
    manifest = store.manifest(reference)
    if predicted.ndim == 2:
        training_set = manifest.derived_from.get("training_set", "")
        classes = store.manifest(training_set).details.get("classes", ()) if training_set else part.classes
        predicted = by_class(predicted, classes, part.classes, int(part.labels.max()) + 1)
    read = task.read(predicted, part.groups)
    if manifest.entry(FILE) is None:
        return read
    return read.decided(Calibration.from_json(store.read_json(reference, FILE)).threshold)


def by_class(predicted: Array, learned: Sequence[str], labelled: Sequence[str], count: int) -> Array:
    """Probabilities in the order of the test rows' classes; a class that the model never learned has probability 0.

    Args:
        predicted: Of each class that the model knows, shape (rows, classes).
        learned: Their names; empty if its training set numbers classes without names.

    Returns:
        Shape (rows, classes): the classes of the test rows, then those that only the model knows.

    Raises ConfigurationError if only one of both has names.
    """
    if bool(learned) != bool(labelled):
        raise ConfigurationError(
            f"The model's classes are {', '.join(learned) or 'numbers'}, and those of the test rows "
            f"{', '.join(labelled) or 'numbers'}: expected names for both or for none."
        )
    classes = predicted.shape[1]
    if not labelled:
        return np.pad(predicted, ((0, 0), (0, max(0, count - classes))))
    names = [*labelled, *(name for name in learned[:classes] if name not in labelled)]
    ordered = np.zeros((len(predicted), len(names)))
    for column, name in enumerate(learned[:classes]):
        ordered[:, names.index(name)] = predicted[:, column]
    return ordered
