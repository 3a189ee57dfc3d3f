"""A piece for tests, which squares a number and leaves a line of what it did; some kill their worker, or fail."""

import os
import signal
import time
from pathlib import Path

from gatehouse.errors import ConfigurationError
from gatehouse.pieces.piece import piece
from gatehouse.runtime import limits
from gatehouse.store.hidden_values import unless_hidden
from gatehouse.store.stage import StageModel
from gatehouse.store.store import ArtifactStore


class SquareRequest(StageModel):
    """A number; the folder in which a line is left; how often its worker dies; whether it fails; how long it takes."""

    number: int
    folder: str
    deaths: int = 0
    fails: str = ""
    seconds: float = 0.0


class SquareResult(StageModel):
    """The square, in an artifact too, and what the worker could use."""

    square: int
    kept: str
    processors: int
    memory: int


@piece
def square(request: SquareRequest, store: ArtifactStore) -> SquareResult:
    """Square a number."""
    lines = Path(request.folder) / str(request.number)
    with lines.open("a") as file:
        file.write(f"{os.getpid()}\n")
    if len(lines.read_text().splitlines()) <= request.deaths:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(request.seconds)
    if request.fails == "ours":
        raise ConfigurationError(f"number: {unless_hidden(f'found {request.number}')}")
    if request.fails:
        raise ValueError(f"found {request.number}")
    kept = str(store.publish("pieces", "square", {"square": str(request.number**2)}))
    return SquareResult(square=request.number**2, kept=kept, processors=limits.processors(), memory=limits.memory())
