"""Sends what a project announced to its webhooks, at least once: as CloudEvents, or as notices for Slack and Teams.

Announcements are records in the store, and a mark beside one says that a webhook accepted it. So what a webhook missed
is sent again when the next run ends, or by `reconcile`. Who sends has a claim, which lapses: two processes send the
same event only if one of them was killed after the webhook had accepted it.
"""

import logging
import os
import posixpath
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from typing import Any, Literal

from pydantic import Field, field_validator

from gatehouse.configuration.strict import Strict
from gatehouse.operations import lineage
from gatehouse.operations.notice import ADDRESS, Delivery, Form, Notice, When, body_of, post
from gatehouse.store.announcement import FOLDER, TYPES
from gatehouse.store.records import author, claim, read_record, remove_record
from gatehouse.store.run import Attempt
from gatehouse.store.store import ArtifactStore

logger = logging.getLogger(__name__)

PREFIX = "gatehouse."
"""What the types of our events begin with."""
ALERTS, LINEAGE = "_alerts", "_lineage"
"""The webhook of the project's `alerts`, and the server of OpenLineage; no destination of a project has such a name."""
SENDING = "notice:webhook"
"""The name under which the record of a run has the warnings of its webhooks."""
_LAPSES, _SECONDS = 600.0, 120.0
"""After how many seconds a claim has lapsed, and how long one pass sends."""
_MISTAKEN = ("answered 400", "answered 413", "answered 415", "answered 422")
"""Answers about the event, not about the webhook: the next event may be accepted."""


class Destination(Strict):
    """A webhook that gets events.

    Its address is in the variable `GATEHOUSE_EVENTS_<NAME>_WEBHOOK`, and the secret that signs what it gets in
    `GATEHOUSE_EVENTS_<NAME>_SECRET`; on a cluster both come from the secret with credentials, where the keys are
    `events-<name>-webhook` and `events-<name>-secret`.
    """

    form: Literal["cloudevents", "generic", "slack", "teams"] = Field(
        "cloudevents", description="CloudEvents in JSON, the event's data alone, Slack's blocks, or a card for Teams."
    )
    types: tuple[str, ...] = Field((), description="Types that it gets, such as `gatehouse.model.*`; empty for all.")
    when: When = Field("always", description="Of these: all, also what went well; warnings and failures; or failures.")
    days: float = Field(7, gt=0, le=30, description="For how many days an event is sent again until it is accepted.")

    @field_validator("types")
    @classmethod
    def _known(cls, types: tuple[str, ...]) -> tuple[str, ...]:
        names = [PREFIX + name for name in TYPES]
        if unknown := [pattern for pattern in types if not any(fnmatchcase(name, pattern) for name in names)]:
            raise ValueError(f"expected types ({', '.join(names)}) or patterns of them, found {', '.join(unknown)}")
        return types

    def wants(self, type_: str, level: str) -> bool:
        """Whether it gets events of a type, as in `TYPES`, that are `bad`, `warn` or `good`."""
        asked = {"never": (), "fail": ("bad",), "warn": ("bad", "warn"), "always": ("bad", "warn", "good")}
        return level in asked[self.when] and (
            not self.types or any(fnmatchcase(PREFIX + type_, pattern) for pattern in self.types)
        )


def variables_of(*names: str) -> dict[str, str]:
    """The variables with addresses and secrets of destinations and of OpenLineage, by their keys in the credentials."""
    keys = [f"events-{name}-{part}" for name in names for part in ("webhook", "secret")]
    variables = {key: f"GATEHOUSE_{key}".upper().replace("-", "_") for key in keys}
    return variables | {"openlineage-url": "OPENLINEAGE_URL", "openlineage-api-key": "OPENLINEAGE_API_KEY"}


class Outbox:
    """What a project announced, and who gets it."""

    def __init__(
        self,
        store: ArtifactStore,
        project: str,
        events: Mapping[str, Any],
        alerts: When = "never",
        form: Form = "generic",
    ) -> None:
        """Prepare to send; `events` are the project's destinations, `alerts` and `form` those of its notices."""
        self._store, self._project = store, project
        self.destinations = {name: Destination.model_validate(body) for name, body in events.items()}
        if alerts != "never":
            types = (f"{PREFIX}run.ended", f"{PREFIX}schedule.late")
            self.destinations[ALERTS] = Destination(form=form, types=types, when=alerts, days=1)
        if lineage.is_wanted():
            self.destinations[LINEAGE] = Destination(types=(f"{PREFIX}run.ended",))

    @property
    def days(self) -> float:
        """For how many days anything is sent; 0 where nobody gets events, so that nothing need be announced."""
        return max((destination.days for destination in self.destinations.values()), default=0.0)

    def announced(self) -> list[str]:
        """The keys of what was announced in these days and of the marks beside it, by second and then as in `TYPES`."""
        today, ages = datetime.now(UTC), range(int(self.days) + 2) if self.days else ()
        folders = [f"{FOLDER}/{self._project}/{today - timedelta(days=age):%Y-%m-%d}" for age in ages]
        keys = [key.split("_", 2) for folder in folders for key in self._store.objects.list(folder)]
        keys.sort(key=lambda key: (key[0], [*TYPES, key[1]].index(key[1])))
        return ["_".join(key) for key in keys]

    def send(self) -> dict[tuple[str, str], Delivery]:
        """Send what was not accepted, the oldest first; gives deliveries by key of the announcement, and destination.

        If a webhook is down, it gets nothing more this time, and the run's record has a warning.
        """
        keys, deliveries = self.announced(), dict[tuple[str, str], Delivery]()
        marked, until, down = set(keys), time.monotonic() + _SECONDS, dict[str, Delivery]()
        for key in keys:
            day, _, name = key.rpartition("/")
            if not name.endswith(".json") or key.removesuffix(".json") in marked:  # A destination may be named json.
                continue
            moment, type_, level, _ = name.split("_")
            at = datetime.strptime(f"{posixpath.basename(day)}{moment}Z", "%Y-%m-%d%H%M%S%z")
            for place, destination in self.destinations.items():
                age = datetime.now(UTC) - at
                if age > timedelta(days=destination.days) or not destination.wants(type_, level):
                    continue
                if f"{key}.{place}" in marked:
                    deliveries[key, place] = Delivery(True, 0, "was delivered by an earlier attempt")
                elif place in down or time.monotonic() > until:
                    deliveries[key, place] = down.get(place, Delivery(False, 0, "was too slow"))
                else:
                    delivery = deliveries[key, place] = self._deliver(key, place, destination)
                    if not delivery.delivered and not delivery.why.startswith(_MISTAKEN):
                        down[place] = delivery
        return deliveries

    def _deliver(self, key: str, place: str, destination: Destination) -> Delivery:
        objects, mark = self._store.objects, f"{key}.{place}"
        if not claim(objects, f"{mark}.claim", _LAPSES):
            return Delivery(False, 0, "is called by another process")
        if objects.stat(mark):  # Another process sent it since these were listed.
            delivery = Delivery(True, 0, "was delivered by an earlier attempt")
        else:
            announcement = read_record(objects, key) or {}
            delivery = self._post(announcement, key, place, destination)
            if delivery.delivered:
                self._store.record(mark, author() | {"attempts": delivery.attempts})
            else:
                to = "" if place == ALERTS else f" for {place.removeprefix('_')}"
                message = f"The notice{to} that {announcement['what']} was not posted: the webhook {delivery.why}"
                logger.warning("%s.", message)
                Attempt(self._store, SENDING).note("warned", message=message, attempts=delivery.attempts)
        remove_record(objects, f"{mark}.claim")
        return delivery

    def _post(self, announcement: Mapping[str, Any], key: str, place: str, destination: Destination) -> Delivery:
        if place == LINEAGE:
            return lineage.send(self._store, str(announcement["about"]["run"]))
        address, secret = (ADDRESS, f"{ADDRESS}_SECRET") if place == ALERTS else [*variables_of(place).values()][:2]
        if not (url := os.environ.get(address, "").strip()):
            return Delivery(False, 0, f"is not set: {address} is empty")
        identity = key.rpartition("_")[2].removesuffix(".json")
        shown = {name: announcement[name] for name in ("title", "tone", "lines", "facts", "links")}
        type_ = str(announcement["type"])
        named = {"event": type_.replace(".", "-"), "project": self._project, "idempotency_key": identity}
        form: Form = "generic" if destination.form == "cloudevents" else destination.form
        body = body_of(Notice(**shown), form, named | dict(announcement["about"]))
        signed = os.environ.get(secret, "")
        if destination.form != "cloudevents":
            return post(url, body, identity, secret=signed)
        # A CloudEvent 1.0 in structured mode.
        event = {
            "specversion": "1.0",
            "id": identity,
            "source": f"urn:gatehouse:{self._project}",
            "type": PREFIX + type_,
            "subject": announcement["subject"],
            "time": datetime.fromtimestamp(announcement["at"], UTC).isoformat(),
            "datacontenttype": "application/json",
            "data": body,
        }
        return post(url, event, identity, secret=signed, media="application/cloudevents+json")


def delivery_of(deliveries: Mapping[tuple[str, str], Delivery], key: str) -> Delivery | None:
    """The delivery of one announcement: delivered if everybody who gets it has it; None if nobody gets it."""
    own = [delivery for (announced, _), delivery in deliveries.items() if announced == key]
    return min(own, key=lambda delivery: delivery.delivered, default=None)
