"""Runs pieces in a worker: of this machine, which reads calls line by line, or of Ray, which calls `answer_to`."""

import json
import os
import sys
import time
import traceback
from functools import cache
from typing import Any

from gatehouse.errors import GatehouseError, WrongImageError
from gatehouse.pieces.piece import Piece
from gatehouse.runtime import limits
from gatehouse.runtime.process import follow_owner
from gatehouse.store.builder_code import named_object
from gatehouse.store.failures import presentable
from gatehouse.store.hidden_values import hiding
from gatehouse.store.store import ArtifactStore

_opened = cache(ArtifactStore.open)


def answer_to(line: str, memory: int) -> str:
    """Run the piece of a call, both in JSON; an error is an answer too.

    `memory` is what this worker may use, in bytes; 0 for its processors' share of the machine's.
    """
    call, began, used = json.loads(line), time.monotonic(), time.process_time()
    limits.confine(call["cpus"], memory or int(limits.memory() * min(1.0, call["cpus"] / limits.processors())))
    limits.confine_arrow()
    answer: dict[str, object]
    try:
        with hiding(lambda: call["hidden"]):
            try:
                result = _run(call["piece"], call["request"], call["key"], call["force"], call["store"])
                answer = {"result": result}
            except Exception as raised:
                raise presentable(raised) from None
    except Exception as error:
        kind = type(error)
        answer = {"error": f"{kind.__module__}:{kind.__qualname__}", "message": str(error)}
        answer["traceback"] = "" if isinstance(error, GatehouseError) else traceback.format_exc()
    usage = {"seconds": time.monotonic() - began, "processor": time.process_time() - used}
    usage["memory"] = limits.peak_memory()
    return json.dumps(answer | usage)


def _run(name: str, body: dict[str, Any], key: str, force: str, address: str) -> dict[str, Any]:
    piece: Piece[Any, Any] = named_object(name)
    request, store = piece.request.model_validate(body), _opened(address)
    if piece.key(request, force) != key:
        raise WrongImageError(
            f"The piece {name}: expected a worker with the code of its driver, found other code, or other versions of "
            "the packages that it uses. Give the workers the image of the task."
        )
    # It may be there already: a worker that was lost had remembered it, but did not answer.
    result = piece.recall(request, store, key) or piece.run(request, store, key)
    return dict(result.model_dump(mode="json"))


def main() -> None:
    """Answer the calls on standard input until it ends; what a piece prints goes to standard error."""
    follow_owner()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        memory, _, call = line.partition(" ")
        answers.write(answer_to(call, int(memory)) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
