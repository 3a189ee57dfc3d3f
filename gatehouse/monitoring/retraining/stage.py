"""The retrain stage: orders a training if one is due, and submits it to Kubeflow Pipelines if that is set up."""

import os
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

from gatehouse.errors import ConfigurationError
from gatehouse.kfp_api.variables import ENDPOINT
from gatehouse.monitoring.orders import Order, Orders
from gatehouse.monitoring.retraining.policy import cause_of, due, held_back
from gatehouse.monitoring.spec import RetrainSpec
from gatehouse.monitoring.stage import FILE
from gatehouse.store.stage import Effects, Resources, StageModel, stage
from gatehouse.store.store import ArtifactStore

if TYPE_CHECKING:
    from collections.abc import Sequence


class RetrainRequest(StageModel):
    """The results of monitoring, and how a model is trained.

    Attributes:
        project: Name of the project.
        model_name: Name under which models are registered.
        model: Reference of the champion.
        drift: Reference of the drift report.
        registered: When the champion was registered, in UTC; empty if not known.
        source: Where the training reads the raw tables; empty for the project's source.
        window: The events that the training reads; empty for all.
        until: End of the window that was monitored; empty if it reaches up to now. A window of the past, as in a
            backfill, orders nothing.
        spec: What asks for a new model, and how often, as a RetrainSpec.
    """

    project: str
    model_name: str
    model: str
    drift: str
    registered: str = ""
    source: str = ""
    window: str = ""
    until: str = ""
    spec: RetrainSpec


class RetrainResult(StageModel):
    """The action, its cause, the name of the run, and the reasons; `summary` says it in one line.

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
_SAID = {
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
    resources=Resources(cpu="500m", memory="1G", minutes=15),
)
def retrain(request: RetrainRequest, store: ArtifactStore) -> RetrainResult:
    """Order a training if one is due and no limit holds it back; a cause is ordered once.

    An earlier order for this champion that was not submitted comes first: the process that gave it was killed. A window
    with an end orders nothing: a problem in the past is no reason to train today.

    Raises:
        ConfigurationError: if Kubeflow Pipelines has no training pipeline of the project.
    """
    if request.until:
        past = f"only rows before {request.until} were monitored (`until`), as in a backfill, which orders no training"
        return RetrainResult(action="nothing", reasons=(past,), summary=f"orders nothing: {past}")
    orders = Orders(store, request.model_name)
    waiting = [each for each in orders.all() if each.champion == request.model and orders.is_open(each)]
    if waiting:
        return _act(request, store, orders, waiting[-1])
    told, age = store.read_json(request.drift, FILE), _age_days(request.registered)
    asks, why = due(request.spec, told, age)
    if not asks:
        return RetrainResult(action="nothing", reasons=(_NOTHING,), summary=_NOTHING)
    reference = store.manifest(request.drift).derived_from["reference"]
    cause = cause_of(asks, told, reference, request.model, int(age // request.spec.every_days))
    held: list[str] = []

    def decide(before: "Sequence[Order]") -> Order | None:
        if known := [each for each in before if each.cause == cause]:
            return known[0]
        held[:] = filter(None, [held_back(request.spec, before, time.time())])
        return None if held else _order(request, store, cause, why)

    order = orders.give(decide)
    if order is None:
        late = f"no new model is ordered: {held[0]}"
        return RetrainResult(
            action="held back", cause=cause, reasons=(*held, *why), summary=f"held back: {held[0]}", warnings=(late,)
        )
    return _act(request, store, orders, order)


def _order(request: RetrainRequest, store: ArtifactStore, cause: str, why: tuple[str, ...]) -> Order:
    parameters = {"source": request.source, "window": request.window}
    return Order(
        cause=cause,
        run=f"{request.project}-training-{cause[:12]}",
        champion=request.model,
        reasons=why,
        parameters={name: value for name, value in parameters.items() if value},
        at=time.time(),
    )


def _act(request: RetrainRequest, store: ArtifactStore, orders: Orders, order: Order) -> RetrainResult:
    """Submit an order, or leave it to `gatehouse run` on this machine."""
    if orders.noted(order.cause, "ended"):
        return _told(order, "done")
    if orders.noted(order.cause, "submitted"):
        return _told(order, "submitted")
    if not os.environ.get(ENDPOINT):
        return _told(order, "ordered")
    if not orders.submits(order.cause):
        return _told(order, "under way")
    _submit(request.project, store, orders, order)
    return _told(order, "submitted")


def _told(order: Order, action: Literal["done", "under way", "submitted", "ordered"]) -> RetrainResult:
    """The result for an order, with its run and reasons."""
    summary = f"{order.run} {_SAID[action]}: {'; '.join(order.reasons)}"
    return RetrainResult(action=action, cause=order.cause, run=order.run, reasons=order.reasons, summary=summary)


def _submit(project: str, store: ArtifactStore, orders: Orders, order: Order) -> None:
    """Create and record the run of an order, unless a run of its name exists already."""
    from gatehouse.kfp_api.client import KfpApi

    api, name = KfpApi.connect(), f"{project}-training"
    if not (found := api.find_runs(order.run)):
        pipeline = api.find_pipeline(name)
        version = next(iter(api.versions(pipeline.id)), None) if pipeline else None
        if pipeline is None or version is None:
            raise ConfigurationError(
                f"Kubeflow Pipelines at {api.endpoint} has no pipeline {name} with a version, which the retraining "
                f"order {order.run} needs. Upload it with `gatehouse submit`; the order is kept."
            )
        parameters = {"store": store.address} | order.parameters
        description = "; ".join(order.reasons)[:1000]
        found = [api.create_run(order.run, pipeline.id, version.id, parameters, project, description=description)]
    orders.note(order.cause, "submitted", kfp_run=found[0].id)


def _age_days(registered: str) -> float:
    """Days since the champion was registered; 0 if the time is not known."""
    if not registered:
        return 0.0
    return (datetime.now(UTC) - datetime.fromisoformat(registered)).total_seconds() / 86_400
