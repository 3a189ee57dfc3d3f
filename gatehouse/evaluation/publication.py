"""Judges predictions for labelled rows, whatever made them, and publishes the evaluation."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from gatehouse.errors import GatehouseError
from gatehouse.evaluation.gate import NOT_TRIED, Cost, DataCheck, FittedTestRows, Origins, Suite
from gatehouse.evaluation.spec import EvaluationSpec, GatePolicy
from gatehouse.metrics.judging import TaskProfile
from gatehouse.metrics.tasks import EXPECTED, Task, are_usable
from gatehouse.store.canonical import canonical_json
from gatehouse.store.identity import identity_of
from gatehouse.store.manifest import Manifest
from gatehouse.store.stage import StageModel
from gatehouse.store.store import ArtifactStore

if TYPE_CHECKING:
    from gatehouse.data.splitting.parts import Part
    from gatehouse.evaluation.bootstrap import Units
    from gatehouse.metrics.metric import Array, Predictions


class EvaluateResult(StageModel):
    """The evaluation, its verdict with reasons and warnings, test metrics, and fairness in a line (`summary`)."""

    evaluation: str
    verdict: Literal["pass", "refused", "inconclusive"]
    reasons: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    metrics: dict[str, float]
    champion_metrics: dict[str, float]
    baseline_metrics: dict[str, float]
    summary: str = ""
    transient: bool = Field(False, description="Lineage that cannot be read now may be readable later.")

    @property
    def provisional(self) -> bool:
        """Whether the same request is evaluated again."""
        return self.transient


class ScoringError(GatehouseError):
    """A model cannot score the test rows, or gave predictions that its task does not allow."""


def require_usable(
    predicted: "Array", rows: "Array", task: Task, scorer: str, source: str = "the training set"
) -> None:
    """Raise ScoringError, which names `scorer`, unless there is a prediction that the task allows for every row.

    `rows` are their numbers in `source`, shape (rows,).
    """
    import numpy as np

    right = are_usable(predicted, task.output)
    if len(predicted) != len(rows) or not right.all():
        wrong, others = np.flatnonzero(~right), ""
        if len(wrong):
            value = str(predicted[wrong[0]].tolist()).replace("nan", "NaN or null")
            others = f", found {len(wrong)} others, the first {value} in row {rows[wrong[0]]} of {source}"
        raise ScoringError(
            f"The {scorer} gave {len(predicted)} predictions for {len(rows)} rows; expected {EXPECTED[task.output]} "
            f"for every row{others}."
        )


@dataclass(frozen=True)
class CandidateFacts:
    """What is known of a candidate besides its predictions; a rule that needs more finds it not checked."""

    model: Manifest
    checks: tuple[DataCheck, ...] = ()
    cost: Cost | None = None
    seen: FittedTestRows | None = None
    origins: Origins | None = None
    integration: Suite = NOT_TRIED
    warnings: tuple[str, ...] = ()


def publish_evaluation(
    store: ArtifactStore,
    name: str,
    task: Task,
    spec: EvaluationSpec,
    policy: GatePolicy,
    profile: TaskProfile,
    part: "Part",
    predictions: "Mapping[str, Predictions]",
    units: "Units",
    facts: CandidateFacts,
    inputs: Mapping[str, str],
    **details: Any,
) -> EvaluateResult:
    """Measure the predictions of each role, judge the candidate, and publish the evaluation `name`.

    `profile` gives what the policy leaves to the task; `inputs` are references by role, empty for none; `details` are
    more facts for the manifest.
    """
    import numpy as np

    from gatehouse.evaluation.curves import curves_of
    from gatehouse.evaluation.group_measures import FAIRNESS
    from gatehouse.evaluation.judgement import BASELINE, CANDIDATE, CHAMPION, CONSTANT, judged

    judgement = judged(
        *(task, spec, policy, facts.model, part, predictions, units, facts.checks, facts.cost, facts.seen),
        *(facts.origins, facts.integration, profile),
    )
    resolved, evidence, bins = policy.resolved(profile), judgement.evidence, spec.calibration_bins
    shown = {role: read for role, read in predictions.items() if role != CONSTANT}
    unchecked = [f"{check.name}: {text}" for check in facts.checks for text in check.warnings]
    verdict = {
        "verdict": judgement.verdict,
        "rules": [asdict(rule) for rule in judgement.rules],
        "guessing": asdict(evidence.guessing) if evidence.guessing else None,
        "comparison": asdict(evidence.comparison) if evidence.comparison else None,
        "comparisons": {
            metric: asdict(comparison) | {"smallest_shown": comparison.smallest_shown(resolved.champion.confidence)}
            for metric, comparison in evidence.comparisons.items()
        },
        "seen": asdict(facts.seen) if facts.seen else None,
        "counted": asdict(evidence.counted) if evidence.counted else None,
        "policy": identity_of(resolved),
        "warnings": [*judgement.warnings, *unchecked, *facts.warnings],
    }
    if facts.cost and resolved.cost.measures:  # Otherwise numbers that differ each time would be there without need.
        verdict["cost"] = asdict(facts.cost)
    if facts.integration is not NOT_TRIED:
        verdict["integration"] = asdict(facts.integration)
    files: dict[str, Any] = {
        "metrics.json": judgement.metrics,
        "uncertainty.json": asdict(judgement.uncertainty),
        "slices.json": [asdict(entry) for entry in judgement.slices],
        "curves.json": {role: curves_of(profile.curves, part.labels, read, bins) for role, read in shown.items()},
        "verdict.json": verdict,
    }
    if judgement.fairness:
        files[FAIRNESS] = [asdict(measured) for measured in judgement.fairness]
    level, labels = task.level, part.labels
    published = store.publish(
        "evaluations",
        name,
        {file: canonical_json(body) for file, body in files.items()},
        derived_from={role: reference for role, reference in inputs.items() if reference},
        configuration={"spec": identity_of(spec), "policy": identity_of(policy)},
        details={
            "verdict": judgement.verdict,
            "task": task.name,
            "rows": len(np.unique(part.rows)),
            "level": {"title": level.title, "is_share": level.is_share, "value": level.of(labels, labels)[0]},
        }
        | details,
    )
    return EvaluateResult(
        evaluation=str(published),
        verdict=judgement.verdict,
        reasons=tuple(str(rule) for rule in judgement.rules if rule.refuses),
        warnings=(*judgement.warnings, *facts.warnings),
        metrics=judgement.metrics[CANDIDATE],
        champion_metrics=judgement.metrics.get(CHAMPION, {}),
        baseline_metrics=judgement.metrics[BASELINE],
        summary="; ".join(map(str, judgement.fairness)),
        transient=bool((facts.seen and facts.seen.transient) or (facts.origins and facts.origins.transient)),
    )
