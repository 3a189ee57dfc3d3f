"""Orders to retrain, and the runs that execute them: create-only records, so that a cause leads to only one training.

An order is `<store>/retraining/<model>/orders/<n>.json`, n from 1 without gaps. It is decided with all orders before
it, and created under the next number; if another process took that number first, it is decided again.
`…/<model>/<cause>/` holds which process submits the order (`submitting.json`), the run that was created
(`submitted.json`), which run trains (`training-<n>.json`, the last one counts), and its end (`ended.json`).
"""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gatehouse.errors import GatehouseError
from gatehouse.store.records import author, create_record, read_record, read_records
from gatehouse.store.run import REPORT, RUN_ID, end_of, events
from gatehouse.store.store import ArtifactStore

SUBMITTING_LAPSES = 600.0
"""Seconds after which a process that submits an order counts as killed."""
TRAINING_LAPSES = 48 * 3600.0
"""Seconds without a sign of life after which a run counts as killed."""


class CauseTakenError(GatehouseError):
    """Another run trains for the same cause, or has done so: this run has nothing to do."""

    permanent = True


@dataclass(frozen=True)
class Order:
    """An order to train a model.

    Attributes:
        at: When it was given, in seconds since 1970.
    """

    cause: str
    run: str
    champion: str
    reasons: tuple[str, ...]
    parameters: dict[str, str]
    at: float


class Orders:
    """The orders to train one model in one store."""

    def __init__(self, store: ArtifactStore, model_name: str) -> None:
        self._store = store
        self._prefix = f"retraining/{model_name}"

    def all(self) -> list[Order]:
        """All orders, the oldest first."""
        bodies = read_records(self._store.objects, sorted(self._store.objects.list(f"{self._prefix}/orders")))
        fields = ("cause", "run", "champion", "parameters", "at")
        return [
            Order(**{name: body[name] for name in fields}, reasons=tuple(body["reasons"])) for body in bodies.values()
        ]

    def of_run(self, run: str) -> Order | None:
        """The order that a run executes, by the name of the run or by the record of who submitted it; else None."""
        for order in self.all():
            submitted = self.recorded(order.cause, "submitted") or {}
            if submitted.get("kfp_run") == run or run.rpartition(".")[0] == order.run:
                return order
        return None

    def create(self, decide: Callable[[Sequence[Order]], Order | None]) -> Order | None:
        """Create the order that `decide` returns for all orders before it; None if it returns none.

        It is called again if another process creates an order first. An order that exists is not created again.
        """
        while True:
            before = self.all()
            order = decide(before)
            same = [earlier for earlier in before if order is not None and earlier.cause == order.cause]
            if order is None or same:
                return same[0] if same else None
            body = {**vars(order), "reasons": list(order.reasons), **author(), "at": order.at}
            if create_record(self._store.objects, f"{self._prefix}/orders/{len(before) + 1:06d}.json", body):
                return order

    def record(self, cause: str, what: str, **body: Any) -> bool:
        """Record something about an order; False if it was recorded before."""
        record = {"run": os.environ.get(RUN_ID, ""), "at": time.time()} | body
        return create_record(self._store.objects, f"{self._prefix}/{cause}/{what}.json", record)

    def recorded(self, cause: str, what: str) -> dict[str, Any] | None:
        """The record `what` of an order, for example `submitted`; None if there is none."""
        return read_record(self._store.objects, f"{self._prefix}/{cause}/{what}.json")

    def is_open(self, order: Order) -> bool:
        """Whether an order was not submitted to Kubeflow Pipelines, and no training for it ended on this machine."""
        return not any(self.recorded(order.cause, what) for what in ("submitted", "ended"))

    def failed(self, order: Order) -> str:
        """The run that trained for an order and ended without success, also if it was never tried; else empty."""
        if ended := self.recorded(order.cause, "ended"):
            return str(ended["run"]) if ended.get("exit_code") else ""
        submitted = (self.recorded(order.cause, "submitted") or {}).get("kfp_run", "")
        run = next(reversed(self.attempts(order.cause)), str(submitted))
        return run if run and _is_over(self._store, run) else ""

    def submits(self, cause: str) -> bool:
        """Whether this run may submit an order: it is the first to try, or the run that tried first was killed."""
        if self.record(cause, "submitting"):
            return True
        first, run = self.recorded(cause, "submitting") or {}, os.environ.get(RUN_ID, "")
        return bool(run and first.get("run") == run) or time.time() - float(first.get("at", 0)) > SUBMITTING_LAPSES

    def attempts(self, cause: str) -> list[str]:
        """The runs that trained for an order, oldest first."""
        keys = sorted(self._store.objects.list(f"{self._prefix}/{cause}"))
        records = read_records(self._store.objects, [key for key in keys if "/training-" in key])
        return [str(body["run"]) for body in records.values()]

    def claim(self, cause: str) -> None:
        """Record that this run trains for an order.

        Another run may follow a run that ended as failed or stopped, or that has no end and gave no sign of life for
        `TRAINING_LAPSES`. Attempts on one machine run one after another, and have the name of their order. Raises
        CauseTakenError if another run trains for the order, or has done so.
        """
        run = os.environ.get(RUN_ID, "")
        while True:
            before = self.attempts(cause)
            if run and run in before:
                return
            holder = before[-1] if before else ""
            # Attempts at one order on one machine are named `<name>.<n>`.
            (name, _, number), (earlier_name, _, earlier) = run.rpartition("."), holder.rpartition(".")
            numbered = name and name == earlier_name and number.isdigit() and earlier.isdigit()
            follows = numbered and int(number) > int(earlier)
            if before and not follows and not _is_over(self._store, holder):
                raise CauseTakenError(f"{holder or 'Another process'} trains for the cause {cause[:12]} already.")
            if self.record(cause, f"training-{len(before) + 1:03d}", run=run):
                return


def _is_over(store: ArtifactStore, run: str) -> bool:
    """Whether a run ended without success, or was killed: it has no end, and gave no sign of life for a long time.

    A failed stage does not end a run, because KFP may retry its task. An end does not count if a stage began after it:
    somebody retried the run.
    """
    work = (event for _, event in events(store, run) if event.stage.partition(":")[0] != REPORT)
    signs = [float(event.body.get("at", 0)) for event in work]
    if (end := end_of(store, run)) and max(signs, default=0.0) <= float(end.get("last", 0.0)):
        return end["state"] in ("failed", "stopped")
    return bool(signs) and time.time() - max(signs) > TRAINING_LAPSES
