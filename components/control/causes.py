"""Orders to retrain and who trains for them: create-only records, so that one cause is trained for once.

`<store>/retraining/<model>/orders/<n>.json`, n from 1 without holes: an order is decided on all orders before it, and
created under the next number only if nobody else did so first; else it is decided again. `…/<model>/<cause>/` holds who
submits it (`submitting.json`), the run it became (`submitted.json`), which run trains (`training-<n>.json`, the last
counts), and how that ended (`ended.json`).
"""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gatehouse.components.artifacts.records import author, create_record, read_record, read_records
from gatehouse.components.artifacts.run import RUN_ID, end_of, events
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.errors import GatehouseError

SUBMITTING_LAPSES = 600.0
"""Seconds after which who submits an order counts as killed."""
TRAINING_LAPSES = 48 * 3600.0
"""Seconds after the last sign of a run after which it counts as killed."""


class CauseTakenError(GatehouseError):
    """Another run trains for the same cause, or has done so: this one has nothing to do."""

    permanent = True


@dataclass(frozen=True)
class Order:
    """An order to train a model.

    Attributes:
        cause: Digest of what asks for it.
        run: Name of the run.
        champion: The model that it is to replace.
        reasons: Why, in words.
        parameters: Of the training pipeline.
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
        return [_read(body) for body in bodies.values()]

    def give(self, decide: Callable[[Sequence[Order]], Order | None]) -> Order | None:
        """Give the order that `decide` asks for, on all orders before it; None where it asks for none.

        Args:
            decide: May be asked several times, as others go ahead. What is there already is not given again.
        """
        while True:
            before = self.all()
            wanted = decide(before)
            known = [each for each in before if wanted is not None and each.cause == wanted.cause]
            if wanted is None or known:
                return known[0] if known else None
            body = {**vars(wanted), "reasons": list(wanted.reasons), **author(), "at": wanted.at}
            if create_record(self._store.objects, f"{self._prefix}/orders/{len(before) + 1:06d}.json", body):
                return wanted

    def note(self, cause: str, what: str, **body: Any) -> bool:
        """Record something of an order, once; False where it was recorded before."""
        found = {"run": os.environ.get(RUN_ID, ""), "at": time.time()} | body
        return create_record(self._store.objects, f"{self._prefix}/{cause}/{what}.json", found)

    def noted(self, cause: str, what: str) -> dict[str, Any] | None:
        """What was recorded of an order."""
        return read_record(self._store.objects, f"{self._prefix}/{cause}/{what}.json")

    def is_open(self, order: Order) -> bool:
        """Whether nobody submitted an order to Kubeflow Pipelines, and no training for it ended on this machine."""
        return not any(self.noted(order.cause, what) for what in ("submitted", "ended"))

    def submits(self, cause: str) -> bool:
        """Whether this run may submit an order: it is the first that wants to, or the run that wanted to was killed."""
        if self.note(cause, "submitting"):
            return True
        other = self.noted(cause, "submitting") or {}
        mine = os.environ.get(RUN_ID, "")
        return bool(mine and other.get("run") == mine) or time.time() - float(other.get("at", 0)) > SUBMITTING_LAPSES

    def attempts(self, cause: str) -> list[str]:
        """The runs that trained for an order, in order."""
        keys = sorted(self._store.objects.list(f"{self._prefix}/{cause}"))
        found = read_records(self._store.objects, [key for key in keys if "/training-" in key])
        return [str(body["run"]) for body in found.values()]

    def take(self, cause: str) -> None:
        """Say that this run trains for an order.

        A run that ended as failed or stopped, or has no end and gave no sign for `TRAINING_LAPSES`, may be followed by
        another. Attempts on one machine
        come one after another, and are named after their order.

        Raises:
            CauseTakenError: if another run does, or did.
        """
        run = os.environ.get(RUN_ID, "")
        while True:
            before = self.attempts(cause)
            if run and run in before:
                return
            holder = before[-1] if before else ""
            if before and not _follows(run, holder) and not _is_over(self._store, holder):
                raise CauseTakenError(
                    f"The cause {cause[:12]} is trained for by the run {holder or 'of another process'}, so this run "
                    "has nothing to do. To train whatever the cause, start the pipeline without the parameter `cause`."
                )
            if self.note(cause, f"training-{len(before) + 1:03d}", run=run):
                return


def _read(body: dict[str, Any]) -> Order:
    fields = {name: body[name] for name in ("cause", "run", "champion", "parameters", "at")}
    return Order(**fields, reasons=tuple(body["reasons"]))


def _follows(run: str, holder: str) -> bool:
    """Whether both are attempts on one machine at one order: `<name>.<n>`, as `gatehouse run` names them."""
    name, _, number = run.rpartition(".")
    held, _, before = holder.rpartition(".")
    return bool(name) and name == held and number.isdigit() and before.isdigit() and int(number) > int(before)


def _is_over(store: ArtifactStore, run: str) -> bool:
    """Whether a run ended without success, or was killed: then it has no end, and no sign of life for a long time.

    A failed stage does not end a run, as KFP may try its task again.
    """
    if end := end_of(store, run):
        return end["state"] in ("failed", "stopped")
    signs = [float(event.body.get("at", 0)) for _, event in events(store, run)]
    return bool(signs) and time.time() - max(signs) > TRAINING_LAPSES
