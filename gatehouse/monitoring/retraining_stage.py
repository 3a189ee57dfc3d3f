"""The retrain stage: orders a training if one is due and may be ordered, and submits it to Kubeflow Pipelines."""

import os
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

from gatehouse.errors import ConfigurationError
from gatehouse.monitoring.orders import Order, Orders
from gatehouse.monitoring.spec import RetrainSpec, SubmissionSpec
from gatehouse.monitoring.stage import FILE
from gatehouse.runtime.variables import ENDPOINT
from gatehouse.store.canonical import digest_of
from gatehouse.store.stage import Effects, StageModel, stage
from gatehouse.store.store import ArtifactStore

_DAY = 86_400.0


class RetrainRequest(StageModel):
    """The results of monitoring, and how a model is trained.

    Attributes:
        until: End of the window that was monitored; empty if it reaches up to now. A window of the past, as in a
            backfill, orders nothing.
    """

    project: str
    model_name: str
    drift: str
    registered: str = ""
    source: str = ""
    window: str = ""
    until: str = ""
    spec: RetrainSpec
    submission: SubmissionSpec = SubmissionSpec()


class RetrainResult(StageModel):
    """The action, its cause, the name of the run, and the reasons; `summary` has them in one line.

    `action` is one of: `nothing`; `held back`; `done` if the cause was trained for before; `under way` if another task
    submits it; `submitted`; `ordered` if Kubeflow Pipelines is not set up, so that `gatehouse run` trains afterwards.
    """

    action: Literal["nothing", "held back", "done", "under way", "submitted", "ordered"]
    cause: str = ""
    run: str = ""
    reasons: tuple[str, ...] = ()
    summary: str = ""
    warnings: tuple[str, ...] = ()


_NOTHING = "nothing asks for a new model"
_ACTIONS = {
    "done": "was trained for before",
    "under way": "is submitted by another task",
    "submitted": "is submitted",
    "ordered": "is ordered",
}


@stage(
    "retrain",
    title="Order a new model",
    effects=Effects(
        reads="the clock, earlier orders",
        writes="an order, a run of Kubeflow Pipelines",
        why="An order is created once for its cause, and the run is looked for by its name before it is created.",
    ),
)
def retrain(request: RetrainRequest, store: ArtifactStore) -> RetrainResult:
    """Order a training if one is due and no limit holds it back; a cause is ordered again only after a failed training.

    An earlier order for this champion that was not submitted comes first: the process that gave it was killed. A window
    with an end orders nothing: a problem in the past is no reason to train today.

    Raises ConfigurationError if Kubeflow Pipelines has no training pipeline of the project, or if the drift report is
    that of two tables.
    """
    if request.until:
        past = f"only rows before {request.until} were monitored (`until`), as in a backfill, which orders no training"
        return RetrainResult(action="nothing", reasons=(past,), summary=f"orders nothing: {past}")
    orders, inputs = Orders(store, request.model_name), store.manifest(request.drift).derived_from
    if not (champion := inputs.get("model", "")):
        raise ConfigurationError(
            f"drift: expected the drift report of a champion, found {request.drift}, which has none."
        )
    waiting = [order for order in orders.all() if order.champion == champion and orders.is_open(order)]
    if waiting:
        return _act(request, store, orders, waiting[-1])
    drift, age = store.read_json(request.drift, FILE), 0.0
    if request.registered:
        age = (datetime.now(UTC) - datetime.fromisoformat(request.registered)).total_seconds() / _DAY
    asks, reasons = due(request.spec, drift, age)
    if not asks:
        return RetrainResult(action="nothing", reasons=(_NOTHING,), summary=_NOTHING)
    # The triggers, the champion with its training set, and the window, or the schedule's period.
    window = [drift["facts"].get("decided from", ""), drift["facts"].get("to", "")]
    if asks == "schedule":
        window = [str(int(age // request.spec.every_days))]
    about = {"check": asks, "reference": inputs["reference"], "window": window, "champion": champion}
    cause, why, limits = "", reasons, list[str]()

    def decide(before: Sequence[Order]) -> Order | None:
        nonlocal cause, why
        cause, why, orders_by_cause = digest_of(about), reasons, {order.cause: order for order in before}
        while same := orders_by_cause.get(cause):
            if not (failed := orders.failed(same)):
                return same
            # The cause is still there: it is ordered again, as often as the limits allow.
            why, cause = (*why, f"{failed} trained for it and failed"), digest_of({**about, "after": cause})
        limits[:] = filter(None, [held_back(request.spec, before, time.time())])
        if limits:
            return None
        parameters = {name: value for name in ("source", "window") if (value := getattr(request, name))}
        return Order(cause, f"{request.project}-training-{cause[:12]}", champion, why, parameters, time.time())

    order = orders.create(decide)
    if order is None:
        late = f"no new model is ordered: {limits[0]}"
        return RetrainResult(
            action="held back",
            cause=cause,
            reasons=(*limits, *why),
            summary=f"held back: {limits[0]}",
            warnings=(late,),
        )
    return _act(request, store, orders, order)


def due(spec: RetrainSpec, drift: Mapping[str, Any], age_days: float) -> tuple[str, tuple[str, ...]]:
    """The triggers that ask for a new model, joined by `+`, and the reasons; empty if none does.

    `drift` is the content of the drift report, `age_days` the days since the champion was registered.
    """
    reasons = {name: tuple(drift["reasons"]) for name in drift["triggers"] if name in spec.on}
    if "schedule" in spec.on and age_days >= spec.every_days:
        reasons["schedule"] = (f"the champion is {age_days:.0f} days old; a new one is due after {spec.every_days}",)
    rows = int(drift["facts"].get("labelled rows after the last train row", 0))
    if "volume" in spec.on and rows >= spec.new_rows:
        reasons["volume"] = (f"{rows:,} labelled rows are new; a new model is due from {spec.new_rows:,}",)
    return "+".join(sorted(reasons)), tuple(dict.fromkeys(reason for of_one in reasons.values() for reason in of_one))


def held_back(spec: RetrainSpec, before: Sequence[Order], now: float) -> str:
    """Why the cool-down or the budget allows no order `now`, in seconds since 1970; empty if one may be given."""
    last = max((order.at for order in before), default=float("-inf"))
    if now - last < spec.cool_down_days * _DAY:
        return (
            f"the last order was given {(now - last) / _DAY:.1f} days ago; another may follow after "
            f"{spec.cool_down_days:g} (`retrain.cool_down_days`)"
        )
    recent = sum(now - order.at < spec.budget_days * _DAY for order in before)
    if recent >= spec.budget:
        return (
            f"{recent} orders were given in the last {spec.budget_days} days; the budget is {spec.budget} "
            "(`retrain.budget`)"
        )
    return ""


def _act(request: RetrainRequest, store: ArtifactStore, orders: Orders, order: Order) -> RetrainResult:
    """Submit an order, or leave it to `gatehouse run` on this machine."""
    if orders.recorded(order.cause, "ended"):
        return _result(order, "done")
    if orders.recorded(order.cause, "submitted"):
        return _result(order, "submitted")
    if not os.environ.get(ENDPOINT):
        return _result(order, "ordered")
    if not orders.submits(order.cause):
        return _result(order, "under way")
    _submit(request, store, orders, order)
    return _result(order, "submitted")


def _result(order: Order, action: Literal["done", "under way", "submitted", "ordered"]) -> RetrainResult:
    """The result for an order, with its run and reasons."""
    summary = f"{order.run} {_ACTIONS[action]}: {'; '.join(order.reasons)}"
    return RetrainResult(action=action, cause=order.cause, run=order.run, reasons=order.reasons, summary=summary)


def _submit(request: RetrainRequest, store: ArtifactStore, orders: Orders, order: Order) -> None:
    """Create and record the run of an order, unless a run of its name exists already."""
    from gatehouse.kfp_api.client import KfpApi

    api, name = KfpApi.connect(), f"{request.project}-training"
    if not (runs := list(api.runs(name=order.run))):
        pipeline = api.find_pipeline(name)
        asked, versions = request.submission, api.versions(pipeline.id) if pipeline else ()
        version = next((version for version in versions if asked.version in ("", version.name)), None)
        if pipeline is None or version is None:
            needed = f"the version {asked.version}" if asked.version else "a version"
            raise ConfigurationError(
                f"Kubeflow Pipelines at {api.endpoint} has no pipeline {name} with {needed}, which the retraining "
                f"order {order.run} needs. `gatehouse submit` and `gatehouse schedule apply` upload it with monitoring;"
                " the order is kept."
            )
        parameters, description = {"store": store.address} | order.parameters, "; ".join(order.reasons)[:1000]
        place = asked.model_dump(include={"service_account", "plugins_input"})
        experiment = asked.experiment or request.project
        runs = [
            api.create_run(order.run, pipeline.id, version.id, parameters, experiment, description=description, **place)
        ]
    orders.record(order.cause, "submitted", kfp_run=runs[0].id)
