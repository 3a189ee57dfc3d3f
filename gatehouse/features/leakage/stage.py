"""The stage that judges whether a training set holds only what was known at decision time."""

import json
import math
from typing import Any

from pydantic import Field

from gatehouse.data.validation.sensitivity import sensitive_columns
from gatehouse.errors import ConfigurationError
from gatehouse.features.spec import Reason
from gatehouse.store.canonical import canonical_json
from gatehouse.store.stage import StageModel, stage
from gatehouse.store.store import ArtifactStore

REPORT = "leakage.json"
_INPUTS = ("training_set", "feature_tables", "snapshot", "definitions")
_JUDGED_BY = ("alarm", "cuts", "unchecked")
_AT_ONCE = 8
"""Features of a row that are as much work to score alone as a row of a table is to replay."""
_ADVICE = "If that cannot be mended, state the view with a reason under features.unchecked in project.yaml."


class LeakageRequest(StageModel):
    """A training set, everything it was made from, and how it is judged.

    Every view is replayed at `cuts` moments of its own rows, and at the middle decision. The views in `unchecked`, each
    with a reason, may go unchecked; any other view that cannot be checked fails.
    """

    snapshot: str
    feature_tables: str
    training_set: str
    definitions: str
    alarm: float = 0.95
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
    pages={"leakage": "gatehouse.features.leakage.report:page"},
)
def check_leakage(request: LeakageRequest, store: ArtifactStore) -> LeakageResult:
    """Judge whether the training set holds only what was known at decision time; a report is written in any case.

    Raises ConfigurationError if `unchecked` names a view that is not in the training set.
    """
    from gatehouse.features.definitions.repository import check_out, tables_of, without_history
    from gatehouse.features.leakage.replay import Difference
    from gatehouse.features.leakage.replay_pieces import (
        REPLAY,
        AreasRequest,
        PlanRequest,
        ReplayRequest,
        areas,
        plan,
        replay,
    )
    from gatehouse.metrics.tasks import TASKS
    from gatehouse.pieces.piece import ROWS, batches, run_pieces

    manifest = store.manifest(request.training_set)
    details, views = manifest.details, manifest.details["views"]
    for name in request.unchecked:
        if name not in views:
            raise ConfigurationError(
                f"features.unchecked: expected views of the training set, which are {', '.join(views)}; found {name}. "
                "Remove it."
            )
    with store.workspace() as workspace:
        repository = check_out(store, request.definitions, workspace / "feature_repo")
    rows, origin = manifest.rows or 0, {name: getattr(request, name) for name in _INPUTS}
    cuts, differences, untouched = list[dict[str, Any]](), list[Difference](), tuple[str, ...]()
    if rows:
        (planned,) = run_pieces(store, [(plan, PlanRequest(**origin, count=request.cuts))])
        datasets = store.manifest(request.snapshot).derived_from
        reading = [tables_of(repository, [repository.views[name].query for name in at.views]) for at in planned.moments]
        rows_of = {table: sum(entry.rows or 0 for entry in store.manifest(of).files) for table, of in datasets.items()}
        sizes = [sum(rows_of[table] for table in tables) for tables in reading]
        hidden = tuple(sorted(sensitive_columns(store, manifest.reference)))
        calls = [
            (replay, ReplayRequest(**origin, moments=tuple(batch), sensitive=hidden))
            for batch in batches(planned.moments, sizes, ROWS)
        ]
        for path in store.paths_of([result.replayed for result in run_pieces(store, calls)], REPLAY):
            replayed = json.loads(path.read_bytes())
            cuts += replayed["cuts"]
            differences += (Difference(**row) for row in replayed["differences"])
        untouched = planned.untouched
    unchecked = dict[str, str]()
    for name in views:
        view = repository.views[name]
        if view.spec.static:
            continue
        read = tables_of(repository, [view.query])
        if missing := without_history(repository, name):
            unchecked[name] = (
                f"no features/known/<table>.sql says since when the rows of {', '.join(missing)} are known"
            )
        elif whole := [table for table in untouched if table in read]:
            unchecked[name] = (
                f"features/known/{whole[0]}.sql takes no row and no value away, not even at the time of the first "
                "decision, so that the replay sees all that came later; write there which rows and values were known "
                "at getvariable('as_of')"
            )
        elif not any(cut["views"].get(name) for cut in cuts):
            unchecked[name] = "none of its rows counts from a time between the first and the last decision"
    accepted = {name: request.unchecked[name].rstrip(".") for name in unchecked if name in request.unchecked}
    refused = [f"{name}: not checked, as {why}. {_ADVICE}" for name, why in unchecked.items() if name not in accepted]

    task = TASKS[details["task"]]
    group = details.get("group", "") if task.counted == "group" else ""
    features = [*details["numeric"], *details["categorical"]]
    alone = [
        (areas, AreasRequest(training_set=request.training_set, features=tuple(batch)))
        for batch in batches(features, [rows // _AT_ONCE] * len(features), ROWS)
    ]
    area_of = {name: area for result in run_pieces(store, alone) for name, area in result.areas.items()}
    predicted = "the label" if task.has_classes else "whether the label is above its median"
    if group:
        predicted = f"by its place among the rows of a {group} whether the label is above the median there"
    first: dict[tuple[str, str], str] = {}
    for difference in differences:
        text = f"{difference}. Stamp the rows of the view with the time since when their values are known"
        first.setdefault((difference.view, difference.feature), text)
    loud = {name: area for name, area in sorted(area_of.items()) if area > request.alarm}
    alarms = [
        f"{name} alone predicts {predicted} with ROC AUC {area:.3f}, above the alarm of {request.alarm:g}: it may hold "
        "the outcome"
        for name, area in loud.items()
    ]
    if alarms:
        alarms[-1] += (
            ". Take what is not known at the decision out of `features` of its view in definitions.py, and raise the "
            "view's `version`; or make a project of `gatehouse init --from` again, with --without COLUMN. If all is "
            f"known, write features.leakage_alarm: {math.ceil(1000 * max(loud.values())) / 1000:g} in project.yaml"
        )
    reasons = [*first.values(), *alarms, *refused]
    warnings = [
        f"{name}: not checked, as {unchecked[name]}. {reason}. Once that is mended, remove the view from "
        "features.unchecked."
        for name, reason in accepted.items()
    ]
    verdict = "fail" if reasons else "pass"
    status = {name: "not checked" if name in unchecked else "replayed" for name in views}
    body = {
        "verdict": verdict,
        "reasons": reasons,
        "warnings": warnings,
        "alarm": request.alarm,
        "rows": rows,
        "predicted": predicted,
        "views": status | {name: "declared static" for name in views if repository.views[name].spec.static},
        "planned": request.cuts,
        "cuts": cuts,
        "differences": [difference.as_dict() for difference in differences],
        "single_feature_auc": {name: round(area, 6) for name, area in area_of.items()},
    }
    # The manifest stays after an erasure, so its warnings hold no value of a row.
    lasting = [f"{name}: not checked, with the reason: {request.unchecked[name]}" for name in accepted]
    reference = store.publish(
        "leakage",
        manifest.name,
        {REPORT: canonical_json(body)},
        derived_from={name: getattr(request, name) for name in _INPUTS},
        configuration={name: getattr(request, name) for name in _JUDGED_BY},
        details={"verdict": verdict, "warnings": lasting},
    )
    return LeakageResult(leakage=str(reference), verdict=verdict, reasons=tuple(reasons), warnings=tuple(warnings))
