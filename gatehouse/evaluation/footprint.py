"""A program that loads a model, scores rows, and prints its peak memory."""

import subprocess
import sys
from pathlib import Path

from gatehouse.errors import GatehouseError
from gatehouse.metrics.performance import peak_memory_mb
from gatehouse.store.hidden_values import unless_hidden
from gatehouse.store.store import ArtifactStore

PROGRAM = "gatehouse.evaluation.footprint"
_SECONDS = 300


class FootprintError(GatehouseError):
    """The process that measures the memory of a model ended without a number."""


def measured_memory(store: ArtifactStore, model: str, rows: Path) -> float:
    """The peak memory of a process of its own that loads a model and scores rows, in megabytes.

    Raises FootprintError if that process fails, or takes longer than five minutes.
    """
    command = [sys.executable, "-m", PROGRAM, store.address, model, str(rows)]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        raise FootprintError(f"{model}: measuring its memory took longer than {_SECONDS} s. Run again.") from None
    if ended.returncode:
        raise FootprintError(f"{model}: measuring its memory failed: {unless_hidden(ended.stderr.strip()[-500:])}")
    return float(ended.stdout.split()[-1])


def main(address: str, model: str, rows: str) -> None:
    """Load, score, and write the megabytes."""
    import pyarrow.parquet as pq

    from gatehouse.training.predictor import Predictor

    Predictor.load(ArtifactStore.open(address), model).predict(pq.read_table(rows))
    sys.stdout.write(f"{peak_memory_mb()}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
