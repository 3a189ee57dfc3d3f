"""The stage that judges whether a training set holds only what was known at decision time."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from gatehouse.data.validation.sensitivity import sensitive_columns
from gatehouse.errors import ConfigurationError
from gatehouse.features.spec import Reason
from gatehouse.store.canonical import canonical_json
from gatehouse.store.reference import Reference
from gatehouse.store.stage import Resources, StageModel, stage
from gatehouse.store.store import ArtifactStore

if TYPE_CHECKING:
    from gatehouse.features.leakage.all_features import Together
    from gatehouse.features.leakage.replay import Difference
    from gatehouse.metrics.tasks.task import Task

REPORT = "leakage.json"
MODEL_METRIC = "roc_auc"
"""Measures all features together, of two classes: the policy's leakage alarm for it is theirs too."""
_INPUTS = ("training_set", "feature_tables", "snapshot", "definitions")
_JUDGED_BY = ("alarm", "model_alarm", "model_alarm_severity", "cuts", "unchecked")
_NO_HISTORY = "{}: not checked, as no features/known/<table>.sql says since when the rows of {} are known."
_NO_ROWS = "{}: not checked, as none of its rows counts from a time between the first and the last decision."
_DECIDE = (
    "Take what is not known at the decision out of `features` of its view in definitions.py. Where all is known, set "
    "the alarm of single features, features.leakage_alarm: {least:g} in project.yaml, the same for "
    "split.checks.single_feature_auc if that is set lower, and {model}"
)
_OF_MODEL = "look at the alarm of the whole model, leakage_alarm in policy.yaml, which is by a metric of its task"
_MODEL_TOO = (
    "the alarm of the whole model, leakage_alarm: {{roc_auc: {least:g}}} or higher in policy.yaml: at {now:g}, as now, "
    "the gate refuses a model that is as good as this feature alone"
)
_MEND = "Stamp the rows of the view with the time since when their values are known"
_CONSENTED = "{} {}. Once that is mended, take the view out of features.unchecked, and it is checked."
_DOUBTED = "{}: columns of the label that it reads may not be known at the decision; the report says which"
_ADVICE = "Where that cannot be mended, state the view with a reason under features.unchecked in project.yaml."


class LeakageRequest(StageModel):
    """A training set, everything it was made from, and how it is judged.

    Attributes:
        snapshot: Reference of the snapshot.
        feature_tables: Reference of the feature tables.
        training_set: Reference of the training set.
        definitions: Reference of the feature definitions.
        alarm: ROC AUC above which one feature is taken for a leak.
        model_alarm: ROC AUC above which the gate takes a model for leaky; 1 for no alarm, or for another task.
        model_alarm_severity: What the gate's alarm does; where it only warns, this check only warns too.
        cuts: At how many moments of its own rows each view is replayed; all views are also replayed at the middle
            decision.
        unchecked: Views that need not be checked, each with the reason; any other view that cannot be checked fails.
    """

    snapshot: str
    feature_tables: str
    training_set: str
    definitions: str
    alarm: float = 0.95
    model_alarm: float = 1.0
    model_alarm_severity: Literal["refuse", "warn"] = "refuse"
    cuts: int = 7
    unchecked: dict[str, Reason] = Field(default_factory=dict)


class LeakageResult(StageModel):
    """The leakage report; the verdict `pass` or `fail` with reasons; the views not checked with a person's consent."""

    leakage: str
    verdict: str
    reasons: tuple[str, ...]
    warnings: tuple[str, ...] = ()


@stage(
    "check_leakage",
    title="Check for leakage",
    resources=Resources(cpu="2", memory="8G"),
    pages={"leakage": "gatehouse.features.leakage.report:page"},
)
def check_leakage(request: LeakageRequest, store: ArtifactStore) -> LeakageResult:
    """Judge whether the training set holds only what was known at decision time; a report is written in any case.

    Raises:
        ConfigurationError: if `unchecked` names a view that is not in the training set.
    """
    import pyarrow.parquet as pq

    from gatehouse.features.database import connect
    from gatehouse.features.definitions.repository import check_out, without_history
    from gatehouse.features.leakage.all_cuts import replay_all
    from gatehouse.features.leakage.all_features import joint_auc
    from gatehouse.features.leakage.single_features import single_feature_auc
    from gatehouse.features.table_files import feature_files, raw_tables
    from gatehouse.metrics.tasks.found import TASKS

    manifest = store.manifest(request.training_set)
    details, views = manifest.details, manifest.details["views"]
    _require_views(request.unchecked, views)
    hidden, training_set = sensitive_columns(store, manifest.reference), pq.read_table(store.paths(manifest.reference))
    tables, features = raw_tables(store, request.snapshot), feature_files(store, request.feature_tables)
    with store.workspace() as workspace, connect() as connection:
        repository = check_out(store, request.definitions, workspace / "feature_repo")
        lacking = {name: without_history(repository, name) for name in views}
        static = {name for name in views if repository.views[name].spec.static}
        replayed = replay_all(connection, repository, tables, features, training_set, views, request.cuts, hidden)
    task = TASKS[details["task"]]
    group = details.get("group", "") if task.counted == "group" else ""
    areas = single_feature_auc(training_set, details["label"], task, details["numeric"], details["categorical"], group)
    columns = (details["label"], details["decision_time"], details["numeric"], details["categorical"])
    together = joint_auc(training_set, *columns) if request.model_alarm < 1 and task.output == "probability" else None
    unchecked = _unchecked(lacking, static, replayed.cuts, replayed.unsure)
    refused, warnings = _consented(unchecked, request.unchecked)
    plain = _without_rows(unchecked, replayed.doubts, request.unchecked)
    of_all = [*replayed.warnings]
    reasons = [*_reasons(replayed.differences, areas, request, _told(task, group)), *refused]
    if together and together.area > request.model_alarm:
        failing = request.model_alarm_severity == "refuse" and together.low > request.model_alarm
        (reasons if failing else of_all).append(_too_good(together, request))
    warnings += [*replayed.doubts.values(), *of_all]
    verdict = "fail" if reasons else "pass"
    body = {
        "verdict": verdict,
        "reasons": reasons,
        "warnings": warnings,
        "alarm": request.alarm,
        "rows": training_set.num_rows,
        "told": _told(task, group),
        "views": {name: _status(name, static, unchecked) for name in views},
        "planned": request.cuts,
        "cuts": replayed.cuts,
        "differences": [one.as_dict() for one in replayed.differences],
        "single_feature_auc": {name: round(area, 6) for name, area in areas.items()},
        "together": asdict(together) if together else None,
        "model_alarm": request.model_alarm,
    }
    reference = _publish(store, request, manifest.name, body, [*plain, *of_all])
    return LeakageResult(leakage=str(reference), verdict=verdict, reasons=tuple(reasons), warnings=tuple(warnings))


def _publish(
    store: ArtifactStore, request: LeakageRequest, name: str, body: dict[str, Any], warnings: list[str]
) -> Reference:
    return store.publish(
        "leakage",
        name,
        {REPORT: canonical_json(body)},
        derived_from={name: getattr(request, name) for name in _INPUTS},
        configuration={name: getattr(request, name) for name in _JUDGED_BY},
        details={"verdict": body["verdict"], "warnings": warnings},
    )


def _require_views(unchecked: Mapping[str, str], views: Mapping[str, object]) -> None:
    for name in unchecked:
        if name not in views:
            raise ConfigurationError(
                f"features.unchecked: expected views of the training set, which are {', '.join(views)}; found {name}. "
                "Remove it."
            )


def _unchecked(
    lacking: Mapping[str, Sequence[str]],
    static: Collection[str],
    cuts: Sequence[Mapping[str, Any]],
    unsure: Mapping[str, str],
) -> dict[str, str]:
    """By view, why it could not be checked.

    Its tables have no history, or the replay takes no outcomes away (`unsure`), or none of its rows was compared.
    """
    met = {name for one in cuts for name, rows in one["views"].items() if rows}
    found = {name: _NO_HISTORY.format(name, ", ".join(missing)) for name, missing in lacking.items() if missing}
    found = {**unsure, **found}
    return found | {name: _NO_ROWS.format(name) for name in lacking if name not in {*met, *static, *found}}


def _consented(unchecked: Mapping[str, str], given: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Reasons and warnings: views that could not be checked without a person's reason, and those with one."""
    refused = [f"{text} {_ADVICE}" for name, text in unchecked.items() if name not in given]
    accepted = {name: reason.rstrip(".") for name, reason in given.items()}
    return refused, [_CONSENTED.format(text, accepted[name]) for name, text in unchecked.items() if name in accepted]


def _without_rows(unchecked: Mapping[str, str], doubts: Mapping[str, str], given: Mapping[str, str]) -> list[str]:
    """The warnings of views without values of rows, for the manifest, which stays after an erasure."""
    accepted = [f"{name}: not checked, with the reason: {given[name]}" for name in unchecked if name in given]
    return accepted + [_DOUBTED.format(name) for name in doubts]


def _status(view: str, static: Collection[str], unchecked: Collection[str]) -> str:
    if view in static:
        return "declared static"
    return "not checked" if view in unchecked else "replayed"


def _too_good(together: "Together", request: LeakageRequest) -> str:
    does = "refuse" if request.model_alarm_severity == "refuse" else "warn of"
    return (
        f"all features together tell the label with ROC AUC {together.area:.3f} ({together.low:.3f} to "
        f"{together.high:.3f}), above leakage_alarm in policy.yaml ({request.model_alarm:g}), so the gate would {does} "
        "whatever is trained to beat it. (A linear model was fitted here on the first 70 % of all rows by time, before "
        "any split, and measured on the others.) Look which features hold the outcome; where a model can be that good, "
        f"raise its alarm: leakage_alarm: {{roc_auc: {_at_least(together.area):g}}} or higher in policy.yaml"
    )


def _at_least(area: float) -> float:
    """The lowest alarm of three digits that does not ring."""
    return math.ceil(1000 * area) / 1000


def _told(task: "Task", group: str) -> str:
    """What a feature alone is asked for."""
    if group:
        return f"by its place among the rows of a {group} whether the label is above the median there"
    return "the label" if task.has_classes else "whether the label is above its median"


def _reasons(
    differences: Sequence["Difference"], areas: Mapping[str, float], request: LeakageRequest, told: str
) -> list[str]:
    """Reasons for the verdict `fail`: the first difference of every feature, and every feature above the alarm."""
    first: dict[tuple[str, str], str] = {}
    for one in differences:
        first.setdefault((one.view, one.feature), f"{one}. {_MEND}")
    above = {name: area for name, area in sorted(areas.items()) if area > request.alarm}
    loud = [
        f"{name} alone tells {told} with ROC AUC {area:.3f}, above the alarm of {request.alarm:g}: it may hold "
        "the outcome"
        for name, area in above.items()
    ]
    if loud:
        least = _at_least(max(above.values()))
        model = _MODEL_TOO.format(least=least, now=request.model_alarm) if request.model_alarm < least else _OF_MODEL
        loud[-1] += f". {_DECIDE.format(least=least, model=model)}"
    return [*first.values(), *loud]
