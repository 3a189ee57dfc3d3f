"""The stage that measures scores for labelled rows, whatever made them, and judges them by the policy."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pydantic import Field

from gatehouse.errors import ConfigurationError
from gatehouse.evaluation.result import EvaluateResult, require_usable
from gatehouse.evaluation.spec import EvaluationSpec, GatePolicy, own_names, require_fit
from gatehouse.metrics.judging import external_profile, profile_of
from gatehouse.metrics.lazy_numpy import np
from gatehouse.metrics.metric import Predictions
from gatehouse.metrics.tasks import TASKS
from gatehouse.store.builder_code import builder_code
from gatehouse.store.stage import StageModel, stage
from gatehouse.store.store import ArtifactStore

if TYPE_CHECKING:
    import pyarrow as pa

    from gatehouse.evaluation.labelled_scores import LabelSpec

_MOST_ROWS = 20_000_000
UNCHECKED = "not checked, as predictions alone were given: unseen rows, lineage, training age, drift, cost, integration"


class EvaluateScoresRequest(StageModel):
    """Labelled rows, scores for them, what is measured, and the policy.

    `champion` is the model behind the champion's scores, and `files` has SHA-256 and size in bytes of the candidate's
    files, by path. Both are empty where nobody said.
    """

    test_set: str
    scores: str
    spec: EvaluationSpec = EvaluationSpec()
    policy: GatePolicy = GatePolicy()
    threshold: float = Field(0.5, ge=0.0, le=1.0, description="The second class is predicted from this probability on.")
    champion_threshold: float = Field(0.5, ge=0.0, le=1.0, description="The same of the champion's scores.")
    champion: str = ""
    files: dict[str, tuple[str, int]] = Field(default_factory=dict)


def evaluate_tables(
    store: ArtifactStore,
    tables: "Mapping[str, pa.Table]",
    asked: Mapping[str, Any],
    champion: str = "",
    files: Mapping[str, tuple[str, int]] = MappingProxyType({}),
) -> EvaluateResult:
    """Publish the scores of a candidate, and judge them.

    Args:
        tables: By role (candidate, champion, baseline) a table; the first has the labelled rows.
        asked: The inputs of the component `evaluate`.
        champion: The model behind the champion's scores; empty for none.
        files: SHA-256 and size in bytes of the candidate's files, by path; empty if nobody gives them.

    Raises ConfigurationError as `publish_scores` does, and for wrong settings; UnusablePartError for wrong labels.
    """
    from gatehouse.evaluation.evaluating import BASELINE, CANDIDATE, CHAMPION
    from gatehouse.evaluation.labelled_scores import LabelSpec
    from gatehouse.store.parameters import checked

    rows, measured = tables[CANDIDATE], checked("spec", EvaluationSpec, asked["spec"])
    labels = checked("labels", LabelSpec, {name: asked[name] for name in ("label", "task", "positive", "classes")})
    scored = {CANDIDATE: (rows, asked["score"])}
    for role in (CHAMPION, BASELINE):
        if asked[f"{role}_score"] or role in tables:
            scored[role] = (tables.get(role, rows), asked[f"{role}_score"] or asked["score"])
    roles = {"champion": champion, "group": asked["group"], "weights": asked["weights"]}
    test_set, scores = publish_scores(store, asked["name"], rows, scored, labels, measured, **roles)
    request = {"test_set": test_set, "scores": scores, "spec": asked["spec"], "policy": asked["policy"]}
    request |= {name: asked[name] for name in ("threshold", "champion_threshold")}
    request |= {"champion": champion, "files": dict(files)}
    return evaluate_scores(checked("evaluate", EvaluateScoresRequest, request), store)


def publish_scores(
    store: ArtifactStore,
    name: str,
    table: "pa.Table",
    scored: "Mapping[str, tuple[pa.Table, str]]",
    labelled: "LabelSpec",
    spec: EvaluationSpec,
    champion: str = "",
    **roles: str,
) -> tuple[str, str]:
    """Publish labelled rows as `test-sets/<name>`, the same for all candidates, and scores for them as `scores/<name>`.

    `scored` has by role (candidate, champion, baseline) a table of the same rows, and the column of its scores; one of
    nulls alone is none, unless `champion`, the model behind these, is given. `roles` are the columns `group` and
    `weights`. Raises ConfigurationError if a column is missing, is the label, or holds what the task does not allow, or
    if a table has other rows or another order.
    """
    import pyarrow as pa

    from gatehouse.data.splitting.publication import publish_rows
    from gatehouse.evaluation.labelled_scores import (
        column_of,
        labels_of,
        named_classes,
        require_same_rows,
        require_values,
        scores_of,
    )

    scored = dict(scored)
    for role, (rows, score) in list(scored.items()):
        if score == labelled.label:
            raise ConfigurationError(f"score of the {role}: expected another column than the label, found {score!r}.")
        if rows is not table:
            require_same_rows(role, rows, table, labelled.label, *roles.values())
        if role != "candidate" and score in rows.column_names and rows[score].null_count == len(rows):
            if role == "champion" and champion:
                raise ConfigurationError(
                    f"champion: expected scores of {champion}, found nulls alone in the column {score!r}. Give its "
                    "scores, or no champion while there is none."
                )
            del scored[role]
    classes = named_classes(labelled, table, scored)
    read = {role: scores_of(labelled, rows, score, role, classes) for role, (rows, score) in scored.items()}
    kept = dict.fromkeys(spec.protected, "spec.protected") | {spec.resample_by: "spec.resample_by"}
    if isinstance(spec.slices, dict):  # An expression may read any column.
        kept |= dict.fromkeys({*table.column_names} - {score for _, score in scored.values()}, "slices")
    else:
        kept |= dict.fromkeys(spec.slices, "slices")
    kept |= {column: role for role, column in roles.items()}
    columns = {column: column_of(table, column, where) for column, where in sorted(kept.items()) if column}
    if group := roles.get("group"):
        require_values(columns[group], f"group: {group}")
    columns[labelled.label] = pa.array(labels_of(labelled, table, classes))
    decided = any(by_class for role, (_, by_class) in read.items() if role != "baseline")
    scores = pa.table({role: values.tolist() for role, (values, _) in read.items()})
    facts = roles | {"label": labelled.label, "task": labelled.task, "classes": list(classes)}
    test_set = publish_rows(store, "test-sets", name, pa.table(columns), facts, {})
    published = publish_rows(store, "scores", name, scores, {"decided": decided}, {"test_set": test_set})
    return str(test_set), str(published)


@stage(
    "evaluate_scores",
    title="Evaluate scores",
    pages={"evaluations": "gatehouse.evaluation.report:page"},
    outside=lambda request: builder_code(*own_names(request.spec, request.policy)),
)
def evaluate_scores(request: EvaluateScoresRequest, store: ArtifactStore) -> EvaluateResult:
    """Measure the candidate's scores beside those of champion and baseline, and judge them by the policy.

    Without a baseline it is a constant: the mean, or the frequencies of the classes. Whatever the policy leaves open is
    as for `evaluate`, except that there is no alarm of leakage; where scores name a class, accuracy is compared. A rule
    that looks at the model, or at the data that it was trained on, fails only if the policy demands it.

    Raises:
        ConfigurationError: if the policy names metrics that the task does not have, or columns do not exist.
        UnusablePartError: if the labels cannot be judged on.
        ScoringError: if a score is not what the task allows.
    """
    import pyarrow.parquet as pq

    from gatehouse.data.splitting.parts import Part, UnusablePartError, group_numbers
    from gatehouse.data.statistics.linear_model import LinearModel
    from gatehouse.evaluation.bootstrap import Units
    from gatehouse.evaluation.evaluating import BASELINE, CANDIDATE, CHAMPION, CONSTANT, CandidateFacts, Evaluation
    from gatehouse.evaluation.gate import DATA_CHECKS, DataCheck
    from gatehouse.evaluation.labelled_scores import numbers_of
    from gatehouse.evaluation.spec import NOT_CHECKED
    from gatehouse.store.manifest import FileEntry, Manifest

    manifest, decided = store.manifest(request.test_set), bool(store.manifest(request.scores).details["decided"])
    facts, task = manifest.details, TASKS[manifest.details["task"]]
    require_fit(request.spec, request.policy, task)
    table, scores = (pq.read_table(store.paths(reference)) for reference in (request.test_set, request.scores))
    labels = table[facts["label"]].to_numpy()
    wrong = int((~task.is_label(labels)).sum())
    if lacking := f"{wrong} rows that are not {task.label}" if wrong else task.lacks(labels):
        raise UnusablePartError(f"label: {facts['label']}: found {lacking}. A model cannot be judged on that.")
    if request.champion and CHAMPION not in scores.column_names:
        raise ConfigurationError(f"champion: expected scores of {request.champion}, found none: name their column.")
    groups, grouped = None, facts["group"]
    if task.counted == "group":
        if not grouped:
            raise ConfigurationError("group: expected the column of the rows that are ranked together, found none.")
        groups = group_numbers(table[grouped], f"group: {grouped}")
    whole = part = Part(np.arange(len(table)), table, labels, groups, tuple(facts["classes"]))
    if facts["weights"]:  # A row that stands for several is several, which the bootstrap draws together.
        weights = numbers_of(table[facts["weights"]], "weights")
        if not ((weights >= 0) & (weights == weights.round()) & (weights < np.inf)).all() or not weights.any():
            raise ConfigurationError(
                f"weights: expected whole numbers from 0, how many rows each row stands for, found {weights.min():g} "
                f"to {weights.max():g}. Scale and round them."
            )
        if weights.sum() > _MOST_ROWS:
            raise ConfigurationError(
                f"weights: expected at most {_MOST_ROWS:,} in sum, as each row is measured so many times, found "
                f"{weights.sum():,.0f}. Divide and round them."
            )
        part = whole.take(np.repeat(whole.rows, weights.astype(np.int64)))
    read: dict[str, Predictions] = {}
    for role in scores.column_names:
        predicted = np.array(scores[role].to_pylist(), np.float64)
        require_usable(predicted, whole.rows, task, role, "the Dataset")
        scored = replace(task.read(predicted, groups).take(part.rows), groups=part.groups)
        threshold = request.champion_threshold if role == CHAMPION else request.threshold
        read[role] = scored if role == BASELINE else scored.decided(threshold)
    constant = LinearModel.fit(facts["task"], part.table, part.labels, [], []).predict(part.table)
    if constant.ndim == 2:
        constant = np.pad(constant, ((0, 0), (0, len(part.classes) - constant.shape[1])))
    read[CONSTANT if BASELINE in read else BASELINE] = task.read(constant, part.groups)
    units = Units.of_split(part, list(filter(None, [grouped or request.spec.resample_by])))
    if units.of_row is None:
        distinct, of_row = np.unique(part.rows, return_inverse=True)
        units = Units("row", len(distinct), of_row)
    files = tuple(FileEntry(path, *entry) for path, entry in sorted(request.files.items()))
    checks = tuple(DataCheck(check.replace("_", " "), NOT_CHECKED, ("was not given",)) for check in DATA_CHECKS)
    evaluation = Evaluation(
        name=manifest.name,
        task=task,
        spec=request.spec,
        policy=request.policy,
        profile=external_profile(task, decided),
        part=part,
        predictions=read,
        units=units,
        facts=CandidateFacts(Manifest("models", manifest.name, files), checks, warnings=(UNCHECKED,)),
        inputs={"training_set": request.test_set, "scores": request.scores},
        details={"scores": "classes" if decided else "numbers", "champion": request.champion, "files": request.files},
    )
    result = evaluation.published(store)
    warnings = [*result.warnings]
    if request.policy.leakage_alarm is None and not decided:
        for name, alarm in profile_of(task).leakage_alarm.items():
            if (value := result.metrics.get(name, 0.0)) >= alarm:
                warnings.append(
                    f"{name} {value:.4g}: does a feature hold the label? Set leakage_alarm in the policy to refuse it"
                )
    if np.array_equal(read[CANDIDATE].form("classes" if decided else "scores"), part.labels):
        warnings.append("every answer is the label itself: is it a copy?")
    slices = store.read_json(result.evaluation, "slices.json")
    if small := [entry for entry in slices if not entry["judged"]]:
        least = request.spec.min_slice_rows
        warnings.append(f"{len(small)} of {len(slices)} slices were not judged: fewer than {least} rows, or one label")
    return result.model_copy(update={"warnings": tuple(warnings)})
