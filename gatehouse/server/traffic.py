"""Traffic: several versions of a model behind one name, and which of them answers a row.

The arm of a row is decided by a hash of the model, the canary's version and the row's entity key. So a key stays in its
arm, every replica agrees, a key that is in at 1 % is in at 5 %, and the next canary gets other keys.
"""

import hashlib
import json
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar
from uuid import uuid4

import pyarrow as pa

from gatehouse.errors import ConfigurationError
from gatehouse.registry.ledger import CANARY, CHAMPION, SHADOW, Ledger
from gatehouse.server.inference import DECISION_TIME, Inference, ServedModel
from gatehouse.store.store import ArtifactStore
from gatehouse.training.transformation import FeatureError

logger = logging.getLogger(__name__)

INTERLEAVED = "interleaved"
"""The arm of groups of a ranking whose rows champion and canary order together."""
NAMED = "named"
"""The arm of rows whose version somebody named: they are part of no comparison."""
SHADOW_ROWS, WAITING_BYTES = 10_000, 256 << 20
"""Rows that wait for the shadow at most; further ones are dropped and counted."""
Item = TypeVar("Item")


def fraction(*of: Hashable) -> float:
    """A number in [0, 1) that follows from the values alone: the first 8 bytes of their SHA-256."""
    return int.from_bytes(hashlib.sha256(json.dumps(of).encode()).digest()[:8]) / 2**64


def team_draft(
    first: Sequence[float], second: Sequence[float], begins: Callable[[int], bool]
) -> list[tuple[int, bool]]:
    """Rows in the order of two rankings together, each with whether the second one picked it.

    In each round both pick their best row that is left, the second one first where `begins` says so of the round. So
    each has the same chance of each place. Radlinski, Kurup and Joachims (2008), How does clickthrough data reflect
    retrieval quality?, CIKM.

    Args:
        first: Scores of the rows, the best one the highest, shape (rows,); the earlier row wins a tie.
        second: Scores of the same rows by the second ranking.
    """
    orders = [sorted(range(len(first)), key=lambda row: -scores[row]) for scores in (first, second)]
    picked, places = dict[int, bool](), [iter(order) for order in orders]
    while len(picked) < len(first):
        leading = begins(len(picked) // 2)
        for team in (leading, not leading):
            if (row := next((row for row in places[team] if row not in picked), None)) is not None:
                picked[row] = team
    return [*picked.items()]


@dataclass(frozen=True)
class Part:
    """Rows of a request in one arm, by their numbers, with the features and predictions of the model that answered.

    `error` is the class of the error with which the arm's own model failed; then the champion answered, or nobody.
    """

    arm: str
    model: ServedModel
    rows: Sequence[int]
    features: pa.Table | None
    predictions: pa.Table | None
    milliseconds: float
    error: str = ""


@dataclass(frozen=True)
class Answer:
    """A request's answer, and all that a log says of it.

    Attributes:
        units: What each row is about, as text: its entity keys, or the id of the request.
        identity: The keys and decision times that the request has, shape (rows,).
        records: Number of ledger records that decided the arms; 0 if somebody named the version.
        failure: The error that the caller gets; None for none.
    """

    request: Inference
    id: str
    at: datetime
    units: Sequence[str]
    identity: pa.Table
    parts: tuple[Part, ...]
    records: int
    failure: Exception | None = None

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.units)

    @property
    def bytes(self) -> int:
        """Bytes of its tables in memory."""
        tables = [table for part in self.parts for table in (part.features, part.predictions) if table is not None]
        return int(sum(table.nbytes for table in (self.identity, *tables)))


@dataclass(frozen=True)
class Traffic:
    """The versions that answer under one name; a request reads it once, so that it sees one state of the ledger.

    `numbers` are the versions of the aliases in the ledger; one that cannot be loaded is missing in `models`. Its rows
    stay in their arm and are answered by the champion. Without `records`, `champion` is a version that somebody named.
    With `interleave`, champion and canary order the canary's share of the groups of a ranking together.
    """

    champion: ServedModel
    models: dict[str, ServedModel] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    share: float = 0.0
    records: int = 0
    interleave: bool = False
    warned: set[tuple[str, str]] = field(default_factory=set, compare=False)

    @classmethod
    def of(
        cls,
        store: ArtifactStore,
        ledger: Ledger,
        online: bool,
        present: "Traffic | None" = None,
        interleave: bool = False,
    ) -> "Traffic":
        """What the ledger says now, with the models that `present` has loaded; `present` itself if nothing changed.

        Raises ConfigurationError if there is no champion, or as `ServedModel.of` raises for the champion.
        """
        state = ledger.state()
        numbers = {alias: number for alias in (CHAMPION, CANARY, SHADOW) if (number := state.holder(alias))}
        if CHAMPION not in numbers:
            raise ConfigurationError(
                f"{ledger.model_name} has no champion: promote a version, or name one: {ledger.model_name}:1."
            )
        complete = present is not None and {CHAMPION, *present.models} == numbers.keys()
        if present and complete and (present.numbers, present.share) == (numbers, state.canary_share):
            return present
        loaded = {int(model.version): model for model in present.every} if present else {}

        def load(number: int) -> ServedModel:
            version = state.version(number)
            assert version is not None, "an alias is held by a version"
            if number not in loaded:
                loaded[number] = ServedModel.load(store, ledger.model_name, number, version.model, online)
            return loaded[number]

        champion, models = load(numbers[CHAMPION]), dict[str, ServedModel]()
        for alias in (CANARY, SHADOW):
            try:
                if alias in numbers:
                    models[alias] = _alike(champion, load(numbers[alias]))
            except Exception:  # Whatever is wrong with it, the champion answers.
                logger.exception("%s:%d is not served as %s", ledger.model_name, numbers[alias], alias)
        if interleave and not champion.group:
            raise ConfigurationError(f"--interleave: expected a ranking, found {champion.name}, which is none.")
        return cls(champion, models, numbers, state.canary_share, state.size, interleave)

    def __str__(self) -> str:
        """The versions with their aliases, such as `delays:4 (champion), delays:5 (canary, 5 %)`."""
        if not self.records:
            return f"{self.champion.name}:{self.champion.version} is {self.champion.model}"
        alone = {alias: number for alias, number in self.numbers.items() if alias == CHAMPION or alias in self.models}
        return ", ".join(
            f"{self.champion.name}:{number} ({alias}{f', {self.share:.4g} of the keys' if alias == CANARY else ''})"
            for alias, number in alone.items()
        )

    @property
    def every(self) -> list[ServedModel]:
        """Every loaded model, the champion first."""
        return [self.champion, *self.models.values()]

    def named(self, version: str) -> ServedModel | None:
        """The loaded model of a version; None if there is none."""
        return next((model for model in self.every if model.version == version), None)

    def answer(self, request: Inference, version: str = "") -> Answer:
        """Score the rows of a request, each with the model of its arm, or all with the version that the caller names.

        Raises ConfigurationError if outputs, keys or the number of rows are not as expected; all else is the `failure`
        of the answer.
        """
        at, name = datetime.now(UTC), self.champion.name
        self.champion.require_outputs(request)
        identity, identified = self.champion.identify(request.inputs), request.id or uuid4().hex
        number = len(request.inputs[0].data)
        units = _units(self.champion, identity) or [identified] * number
        assigned: dict[str, list[int]] = {CHAMPION if self.records else NAMED: list(range(number))}
        if version and self.records:
            assigned = {NAMED: list(range(number))}
        elif canary := self.numbers.get(CANARY, 0):
            drawn = {unit: fraction(name, canary, unit) < self.share for unit in set(units)}
            assigned = {
                arm: rows
                for arm, inside in ((CHAMPION, False), (CANARY, True))
                if (rows := [row for row, unit in enumerate(units) if drawn[unit] is inside])
            }
        answer = Answer(request, identified, at, units, identity, (), self.records)
        parts = list[Part]()
        for arm, rows in assigned.items():
            if arm == CANARY and self.interleave:
                together, failure = self._interleaved(request, rows, units)
                parts += together
                if failure:
                    return replace(answer, parts=tuple(parts), failure=failure)
                continue
            model = self.named(version) if version else self.champion if arm != CANARY else self.models.get(CANARY)
            part, failure = self.part(request, arm, model, rows)
            if failure and arm == CANARY:
                spare, of_champion = self.part(request, arm, self.champion, rows)
                if of_champion is None:
                    self._warn(arm, failure)
                spent = part.milliseconds + spare.milliseconds  # The caller waited for both.
                part, failure = replace(spare, error=part.error, milliseconds=spent), of_champion
            parts.append(part)
            if failure:
                return replace(answer, parts=tuple(parts), failure=failure)
        return replace(answer, parts=tuple(parts))

    def _interleaved(
        self, request: Inference, rows: Sequence[int], units: Sequence[str]
    ) -> tuple[list[Part], Exception | None]:
        """Rows of whole groups, each in the part of the model that picked it, with its place from the end as score."""
        old, failure = self.part(request, INTERLEAVED, self.champion, rows)
        new, failed = self.part(request, INTERLEAVED, self.models.get(CANARY), rows)
        if old.predictions is None or new.predictions is None:
            if failed and not failure:
                self._warn(CANARY, failed)
            return [replace(old, error=new.error)], failure
        output, groups = self.champion.outputs[0].name, dict[str, list[int]]()
        scores = [part.predictions[output].to_pylist() for part in (old, new) if part.predictions is not None]
        for place, row in enumerate(rows):
            groups.setdefault(units[row], []).append(place)
        rank, teams = [0.0] * len(rows), (list[int](), list[int]())
        for unit, places in groups.items():
            first, second = ([of_model[place] for place in places] for of_model in scores)

            def begins(turn: int, unit: str = unit) -> bool:
                return fraction(self.champion.name, self.numbers[CANARY], unit, turn) < 0.5

            for order, (number, team) in enumerate(team_draft(first, second, begins)):
                rank[places[number]] = float(len(places) - order)
                teams[team].append(places[number])

        def of_team(part: Part, places: list[int]) -> Part:
            taken, features, predictions = pa.array(places, pa.int64()), part.features, part.predictions
            assert features is not None and predictions is not None, "both models have answered"
            at = predictions.schema.get_field_index(output)
            ranked = predictions.set_column(at, output, pa.array(rank, predictions.schema.field(output).type))
            return replace(
                part,
                rows=[rows[place] for place in places],
                features=features.take(taken),
                predictions=ranked.take(taken),
            )

        return [of_team(part, sorted(places)) for part, places in zip((old, new), teams, strict=True) if places], None

    def part(
        self, request: Inference, arm: str, model: ServedModel | None, rows: Sequence[int]
    ) -> tuple[Part, Exception | None]:
        """Score rows of a request with a model of an arm; with the error if that fails."""
        began, features, predictions, failure = time.perf_counter(), None, None, None
        others = frozenset[str]().union(*(other.accepted for other in self.every))
        try:
            if model is None:
                raise ConfigurationError(f"{self.champion.name}:{self.numbers[arm]}, {arm}, was not loaded.")
            everything = len(rows) == len(request.inputs[0].data)
            features = model.read(request.inputs, None if everything else rows, others)
            predictions = model.score(features)
        except Exception as error:
            failure = error
        spent, kind = (time.perf_counter() - began) * 1000, type(failure).__name__ if failure else ""
        return Part(arm, model or self.champion, rows, features, predictions, spent, kind), failure

    def body(self, answer: Answer) -> dict[str, Any]:
        """The answer as the protocol has it; its parameters name the arm and the version of each row."""
        parts = [(part, part.predictions) for part in answer.parts if part.predictions is not None]
        tables, rows = [table for _, table in parts], [row for part, _ in parts for row in part.rows]
        order = sorted(range(len(rows)), key=rows.__getitem__)
        together = tables[0] if len(tables) == 1 else pa.concat_tables(tables).take(pa.array(order))
        body = self.champion.answer(answer.request, together) | {"id": answer.id}
        by_row = [(part.arm, part.model.version) for part, _ in parts for _ in part.rows]
        versions = {version for _, version in by_row}
        if len(versions) > 1:
            del body["model_version"]
        else:
            body["model_version"] = versions.pop()
        if answer.records:
            arms, numbers = zip(*(by_row[place] for place in order), strict=True)
            body["parameters"] = {"arms": list(arms), "versions": list(numbers)}
        return body

    def shadowed(self, answer: Answer) -> Answer:
        """The same request, answered by the shadow."""
        part, failure = self.part(answer.request, SHADOW, self.models.get(SHADOW), range(answer.rows))
        if failure:
            self._warn(SHADOW, failure)
        return replace(answer, parts=(part,))

    def _warn(self, arm: str, failure: Exception) -> None:
        """Say once of each kind of error that an arm failed where the champion does not; each is counted."""
        if (kind := (arm, type(failure).__name__)) not in self.warned:
            self.warned.add(kind)
            name, number = self.champion.name, self.numbers[arm]
            logger.warning("%s:%d, %s, failed, and the champion answers", name, number, arm, exc_info=failure)


def is_callers(error: Exception | None) -> bool:
    """Whether the caller sent wrong values."""
    return isinstance(error, (ConfigurationError, FeatureError))


def _alike(champion: ServedModel, model: ServedModel) -> ServedModel:
    if (champion.outputs, champion.classes, champion.group) != (model.outputs, model.classes, model.group):
        raise ConfigurationError(
            f"{model.name}:{model.version}: expected the outputs and classes of the champion, version "
            f"{champion.version}, found others. Serve it under a name of its own."
        )
    return model


def _units(model: ServedModel, identity: pa.Table) -> list[str]:
    """What each row is about: its group in a ranking, else all its entity keys; empty if the request lacks them."""
    names = [model.group] if model.group else [*model.keys]
    if not names or not set(names) <= set(identity.column_names):
        return []
    return [json.dumps(list(values)) for values in zip(*(identity[name].to_pylist() for name in names), strict=True)]


def decision_times(answer: Answer) -> list[datetime]:
    """When each row was decided on: as the request says, else when it came, shape (rows,)."""
    if DECISION_TIME in answer.identity.column_names:
        times: list[datetime] = answer.identity[DECISION_TIME].to_pylist()
        return times
    return [answer.at] * answer.rows


class Waiting(Generic[Item]):
    """Items that wait for a thread: what would make more than `most` rows or `WAITING_BYTES` is dropped, and counted.

    One item is taken whatever its rows are, as a request may have more.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._items: deque[Item] = deque()
        self._lock = threading.Lock()
        self.rows = self.bytes = self.dropped = 0

    def add(self, item: Item, rows: int, size: int) -> bool:
        """Add an item of some rows and bytes; False if it was dropped."""
        with self._lock:
            full = bool(self._items) and (self.rows + rows > self._most or self.bytes + size > WAITING_BYTES)
            if full:
                self.dropped += rows
            else:
                self._items.append(item)
                self.rows, self.bytes = self.rows + rows, self.bytes + size
        return not full

    def take(self) -> list[Item]:
        """All items that wait, in order."""
        with self._lock:
            items = [*self._items]
            self._items.clear()
            self.rows = self.bytes = 0
        return items


class Shadowing:
    """Scores requests with the shadow after they were answered, in a thread, and hands its answers to `done`."""

    def __init__(self, done: Callable[[Answer], None]) -> None:
        self.waiting: Waiting[tuple[Traffic, Answer]] = Waiting(SHADOW_ROWS)
        self._done = done
        self._wake, self._ended = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._work, name="shadowing", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """End the thread after the requests that it has begun."""
        self._ended.set()
        self._wake.set()
        self._thread.join(30)

    def add(self, traffic: Traffic, answer: Answer) -> None:
        """Let the shadow score a request, if there is one."""
        if SHADOW in traffic.numbers and answer.parts and answer.parts[0].arm != NAMED:
            self.waiting.add((traffic, answer), answer.rows, answer.bytes)
            self._wake.set()

    def _work(self) -> None:
        while not self._ended.is_set():
            self._wake.wait()
            self._wake.clear()
            for traffic, answer in self.waiting.take():
                self._done(traffic.shadowed(answer))
