"""A piece: one part of a stage's work, a pure function of references, whose result is remembered by its content.

A stage that can be divided lists its pieces as calls: a function decorated with `@piece`, and a request that says by
references and bounds what the piece reads. `run_pieces` gives their results in that order, wherever they ran. The
function publishes its rows, and its result holds references to them; the stage puts the manifests together. No row
passes through the process that drives the pieces.

The worker that ran a piece remembers its result. So whoever asks again, after a killed worker, a killed driver or a
lost cluster, runs only what is missing. Pieces are cut by data alone: neither the engine nor memory may decide a bound.
"""

import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from gatehouse.errors import GatehouseError, PieceError
from gatehouse.pieces.driving import SCOPE, Scope, driving
from gatehouse.pieces.elsewhere import is_elsewhere, run_elsewhere
from gatehouse.pieces.engine import Engine, engine_of
from gatehouse.runtime.plural import counted
from gatehouse.runtime.variables import ENGINE
from gatehouse.store import memo
from gatehouse.store.age import PIECES
from gatehouse.store.builder_code import named_object
from gatehouse.store.canonical import canonical_json
from gatehouse.store.code import code_digest
from gatehouse.store.hidden_values import hidden_columns
from gatehouse.store.identity import identity_of
from gatehouse.store.objects.base import side_by_side
from gatehouse.store.reference import references_in
from gatehouse.store.run import TASK
from gatehouse.store.stage import Req, Res, forced, request_and_result
from gatehouse.store.store import ArtifactStore

logger = logging.getLogger(__name__)

KIND = PIECES
"""The kind of the artifacts that pieces publish. The collector deletes them when they are old."""
ROWS = 1 << 19
"""About how many rows a piece has."""
_Item = TypeVar("_Item")


class Piece(Generic[Req, Res]):
    """A function `(request, store) -> result` that any worker can run; `name` says where the worker finds it."""

    def __init__(self, function: Callable[[Req, ArtifactStore], Res]) -> None:
        self.function = function
        self.name = f"{function.__module__}:{function.__name__}"
        self.__doc__ = function.__doc__
        self.request: type[Req]
        self.result: type[Res]
        self.request, self.result = request_and_result(function)

    def key(self, request: Req, force: str = "") -> str:
        """The memo key of `request`; the nonce `force` of a forced stage makes another one."""
        identity = identity_of(request) | ({"force": force} if force else {})
        return memo.memo_key(self._folder, code_digest(self.function.__module__), identity)

    def recall(self, request: Req, store: ArtifactStore, key: str) -> Res | None:
        """The remembered result; None if there is none, or its rows are gone."""
        recalled = memo.recall(store, self._folder, key, inputs=references_in(request.model_dump(mode="json")))
        return None if recalled is None else self.result.model_validate(recalled)

    def run(self, request: Req, store: ArtifactStore, key: str) -> Res:
        """Run the function and remember its result."""
        result = self.function(request, store)
        if not memo.remember(store, self._folder, key, result.model_dump(mode="json")):
            logger.warning("The piece %s gave another result than before for the same key %s.", self._folder, key)
        return result

    @property
    def _folder(self) -> str:
        return self.name.rpartition(":")[2]


piece = Piece
"""Decorates the function of a piece."""

Call = tuple[Piece[Any, Any], Any]
"""A piece and its request."""


@driving()
def run_pieces(store: ArtifactStore, calls: Sequence[Call]) -> list[Any]:
    """The results of pieces, in the order of `calls`, from the engine in `GATEHOUSE_ENGINE`.

    A piece that stands alone runs in this process, with all of its processors, unless the engine is a cluster. Raises
    what a piece raises; PieceError if workers were killed too often, or the cluster does not run pieces.
    """
    engine, force, began = engine_of(os.environ.get(ENGINE, "")), forced(), time.monotonic()
    keys = [function.key(request, force) for function, request in calls]

    def recall(number: int) -> Any:
        function, request = calls[number]
        return function.recall(request, store, keys[number])

    # A piece that is remembered costs several requests, and a store that is far away takes its time for each.
    results = side_by_side(store.objects, recall, range(len(calls)))
    waiting = [number for number, result in enumerate(results) if result is None]
    if len(waiting) == 1 and engine.kind == "local":
        function, request = calls[waiting[0]]
        results[waiting[0]] = function.run(request, store, keys[waiting[0]])
        return results
    lines = [
        canonical_json(
            {
                "piece": calls[number][0].name,
                "request": calls[number][1].model_dump(mode="json"),
                "key": keys[number],
                "force": force,
                "store": store.address,
                "hidden": hidden_columns(),
                "cpus": engine.cpus,
            }
        )
        for number in waiting
    ]
    usages = list[dict[str, Any]]()
    for index, answer in _answers(engine, store, keys, lines):
        number = waiting[index]
        if "error" in answer:
            raise _error(answer)
        results[number] = calls[number][0].result.model_validate(answer["result"])
        usages.append(answer)
        logger.info("%s of %s done in %.0f s", len(usages), counted(len(lines), "piece"), time.monotonic() - began)
    if (attempt := TASK.get()) is not None and lines:
        attempt.facts.setdefault("pieces", []).append(
            {
                "pieces": len(lines),
                "seconds": round(time.monotonic() - began, 3),
                "slowest": round(max(usage["seconds"] for usage in usages), 3),
                "processor": round(sum(usage["processor"] for usage in usages), 3),
                "memory": max(usage["memory"] for usage in usages),
            }
        )
    return results


def batches(items: Sequence[_Item], sizes: Sequence[int], most: int) -> list[list[_Item]]:
    """The items in order, in batches whose sizes add up to no more than `most`; a larger item stands alone."""
    divided, total = list[list[_Item]](), 0
    for item, size in zip(items, sizes, strict=True):
        if not divided or total + size > most:
            divided.append([])
            total = 0
        divided[-1].append(item)
        total += size
    return divided


def _answers(
    engine: Engine, store: ArtifactStore, keys: Sequence[str], lines: Sequence[str]
) -> Iterator[tuple[int, dict[str, Any]]]:
    if is_elsewhere(engine):
        return run_elsewhere(engine, store, keys, lines)
    if not lines:
        return iter(())
    if engine.kind == "ray":
        from gatehouse.pieces.ray import run_on_ray

        return run_on_ray(engine, lines)
    from gatehouse.pieces.local import LocalWorkers

    scope = SCOPE.get() or Scope()
    scope.driver = scope.driver or LocalWorkers(engine)
    return scope.driver.answers(lines)


def _error(answer: dict[str, Any]) -> Exception:
    """The error of a worker; one that is not ours comes as a PieceError with its traceback in the log."""
    kind = named_object(answer["error"]) if answer["error"].startswith("gatehouse.") else None
    if isinstance(kind, type) and issubclass(kind, GatehouseError):
        return kind(answer["message"])
    logger.error("%s", answer.get("traceback", ""))
    return PieceError(f"A piece failed: {answer['error'].rpartition(':')[2]}: {answer['message']}")
