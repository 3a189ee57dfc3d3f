"""Events that come in: which runs they order, by the project's triggers, and the submission of those runs, once each.

An event is recorded when it first comes, under the digest of its source and id. It creates an order, or joins one whose
time has not come. An order is `<store>/triggers/<project>/<trigger>/<day>/<n>.json`, n from 1 without gaps: it is
decided with all orders of its day before it, and decided again if another process took its number. All is created
once, and follows from these records, so a repeat after a kill at any step ends with the same run.
"""

import itertools
import json
import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote_plus

from gatehouse.api.pipelines import is_lost, start, start_again
from gatehouse.configuration.trigger import Trigger
from gatehouse.errors import ConfigurationError
from gatehouse.project.project import Project
from gatehouse.store.canonical import digest_of
from gatehouse.store.records import author, claim, read_record, read_records, remove_record
from gatehouse.store.store import ArtifactStore

logger = logging.getLogger(__name__)

MEDIA_TYPES = ("application/cloudevents+json", "application/json")
_FOLDER = "triggers"
_LAPSES = 600.0
"""Seconds after which a process that submits an order counts as killed."""
OLDEST_DAYS = 7


@dataclass(frozen=True)
class Order:
    """A run that an event ordered.

    Attributes:
        name: Name of the run: its id on this machine, a part of its name on Kubeflow Pipelines.
        event: Digest of the event that created it.
        at, due: When that event came, and when the run starts; in seconds since 1970.
        run: Id of the run; empty until it is submitted.
    """

    trigger: str
    pipeline: str
    name: str
    event: str
    at: float
    due: float
    parameters: dict[str, Any]
    by: str
    key: str
    run: str = ""


def read_event(headers: Mapping[str, str], body: bytes) -> dict[str, Any]:
    """The CloudEvent of a request, in structured or binary mode, or one for a notification of S3 or MinIO.

    Raises ConfigurationError for anything else.
    """
    from cloudevents.core.bindings.http import HTTPMessage, from_http_event

    try:
        notification = None if "ce-id" in headers else json.loads(body)
        if isinstance(notification, dict) and "Records" in notification:
            return _of_s3(notification)
        attributes = {name[3:]: headers[name] for name in headers if name.startswith("ce-")} or dict(notification or {})
        if not attributes.get("id") or attributes.get("specversion") != "1.0":  # The package makes both up.
            raise ValueError("expected an id, and 1.0 as specversion")
        event = from_http_event(HTTPMessage(dict(headers), body))
        attributes, when = event.get_attributes(), event.get_time()
    except Exception as error:  # Of the package, and of Python for what is no JSON object or too deep.
        why = " ".join(str(error).split())[:300]
        raise ConfigurationError(
            f"Expected a CloudEvent 1.0 in JSON or headers, found another request: {why}"
        ) from None
    texts = {name: attributes.get(name) or "" for name in ("id", "source", "type", "subject")}
    return texts | {"time": when.isoformat() if when else "", "data": event.get_data()}


def _of_s3(notification: Mapping[str, Any]) -> dict[str, Any]:
    """The event of a notification, by the adapter for AWS S3 of CloudEvents 1.0; it has one record.

    https://github.com/cloudevents/spec/blob/main/cloudevents/adapters/aws-s3.md
    """
    if len(notification["Records"]) != 1:
        raise ValueError(f"expected one record, found {len(notification['Records'])}")
    (record,) = notification["Records"]
    answer = record["responseElements"]
    return {
        "id": f"{answer['x-amz-request-id']}.{answer.get('x-amz-id-2', '')}",
        "source": f"{record['eventSource']}.{record.get('awsRegion', '')}.{record['s3']['bucket']['name']}",
        "type": f"com.amazonaws.s3.{record['eventName'].removeprefix('s3:')}",
        "subject": unquote_plus(str(record["s3"]["object"]["key"])),  # S3 writes it as in an address.
        "time": str(record.get("eventTime", "")),
        "data": record["s3"],
    }


def matching(project: Project, event: Mapping[str, Any]) -> dict[str, Trigger]:
    """The triggers of a project that an event starts, by name."""
    return {name: trigger for name, trigger in project.file.triggers.items() if trigger.matches(event)}


def take(store: ArtifactStore, project: Project, event: Mapping[str, Any], by: str) -> list[Order]:
    """The orders that an event leads to: new ones, those that it joins, or those that it led to before.

    Raises ConfigurationError if the event lacks a field that a parameter needs; then nothing is ordered.
    """
    triggers, digest = matching(project, event), digest_of([event["source"], event["id"]])
    filled = {name: trigger.filled(event) for name, trigger in triggers.items()}
    about = {name: event[name] for name in ("id", "source", "type", "subject", "time")}
    orders = []
    for name, trigger in triggers.items():
        folder = f"{_FOLDER}/{project.name}/{name}"
        came, led = f"{folder}/events/{digest}.json", f"{folder}/events/{digest}.order.json"
        store.record(came, author(by) | {"event": about, "at": time.time()})
        if known := read_record(store.objects, led):
            orders.append(_read(store, str(known["order"])))
            continue
        at = float((read_record(store.objects, came) or {})["at"])
        run = f"{project.name}-{name[:24]}-{digest_of([folder, digest])[:12]}"
        order = Order(name, trigger.pipeline or name, run, digest, at, at, filled[name], by, key="")
        orders.append(_joined_or_created(store, folder, trigger, order))
        store.record(led, {"order": orders[-1].key})
    return orders


def _joined_or_created(store: ArtifactStore, folder: str, trigger: Trigger, new: Order) -> Order:
    moment = datetime.fromtimestamp(new.at, UTC)
    for days in itertools.count(-1):  # An order of yesterday may be due today; a day that is full leads to the next.
        day = moment + timedelta(days=days)
        while True:
            orders = list(_orders(store, folder, day))
            for order in orders:
                joins = order.at <= new.at < order.due and order.parameters == new.parameters
                if joins or order.event == new.event:
                    return order
            if days < 0 or len(orders) >= trigger.per_day:
                break
            start = day if not days else day.replace(hour=0, minute=0, second=0, microsecond=0)
            due, key = (start + trigger.debounce).timestamp(), f"{folder}/{day:%Y-%m-%d}/{len(orders) + 1:06d}"
            order = replace(new, due=due, key=key)
            if store.record(f"{key}.json", asdict(order)):
                return order
    raise AssertionError("there is always another day")


def _orders(store: ArtifactStore, folder: str, day: datetime) -> Iterator[Order]:
    """The orders of a day, in order, each with its run."""
    keys = list(store.objects.list(f"{folder}/{day:%Y-%m-%d}"))
    records = read_records(store.objects, [key for key in keys if key.count(".") == 1 or ".submitted." in key])
    for body in records.values():
        if "key" in body:
            yield replace(Order(**body), run=str(records.get(f"{body['key']}.submitted.json", {}).get("run", "")))


def _read(store: ArtifactStore, key: str) -> Order:
    body = read_record(store.objects, f"{key}.json") or {}
    submitted = read_record(store.objects, f"{key}.submitted.json") or {}
    return replace(Order(**body), run=str(submitted.get("run", "")))


def submit(store: ArtifactStore, project: Path, profile: Path | None, order: Order) -> Order:
    """Submit an order that is due, unless another process does or did so; the order with the id of its run.

    Raises GatehouseError as `pipelines.submit` does; the order is then still there to be submitted.
    """
    if order.run or order.due > time.time():
        return order
    submitting = f"{order.key}.submitting.json"
    if claim(store.objects, submitting, _LAPSES):
        try:
            if not _read(store, order.key).run:
                what = {"pipeline": order.pipeline, "arguments": order.parameters, "until": ""}
                run = start(store, project, profile, order.name, what | {"reason": f"event {order.trigger}"}, order.by)
                store.record(f"{order.key}.submitted.json", author() | {"run": run})
        finally:
            remove_record(store.objects, submitting)
    return _read(store, order.key)


def restart_lost(store: ArtifactStore, project: Project, days: int = OLDEST_DAYS) -> None:
    """Start the runs of orders again that a machine lost, as with the server's container."""
    today = datetime.now(UTC)
    for name, day in itertools.product(project.file.triggers, range(days, -1, -1)):
        for order in _orders(store, f"{_FOLDER}/{project.name}/{name}", today - timedelta(days=day)):
            submitting = f"{order.key}.submitting.json"
            if order.run and is_lost(store, order.run) and claim(store.objects, submitting, _LAPSES):
                try:
                    if is_lost(store, order.run):
                        logger.warning("The run %s was killed, and is started again.", order.run)
                        start_again(store, project.folder, order.run)
                finally:
                    remove_record(store.objects, submitting)


def submit_due(store: ArtifactStore, project: Project, profile: Path | None, days: int = OLDEST_DAYS) -> bool:
    """Submit what is due of the last days; False if something failed, which the log says and the next call repeats."""
    well, today = True, datetime.now(UTC)
    for name, day in itertools.product(project.file.triggers, range(days, -1, -1)):
        for order in _orders(store, f"{_FOLDER}/{project.name}/{name}", today - timedelta(days=day)):
            try:
                submit(store, project.folder, profile, order)
            except Exception as error:  # Whatever is wrong with one order, the later ones are submitted.
                well = False
                logger.warning("The run %s of the trigger %s is not submitted yet: %s", order.name, name, error)
    return well
