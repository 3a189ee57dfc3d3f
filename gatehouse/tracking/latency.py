"""Measures how fast a model answers. The result varies, so it is stored beside the model and not in it."""

import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

_WARM_UP, _SINGLE, _BATCHES, _BATCH = 5, 200, 20, 1024
_SHARES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


def measure_latency(predict: Callable[[pa.Table], Any], table: pa.Table) -> dict[str, Any]:
    """Latency of single rows and of a batch, in milliseconds, with the class of hardware that it was measured on.

    Args:
        predict: Function from a table of raw features to scores.
        table: Rows to score, at least one.

    Returns:
        Quantiles over 200 calls with one row and 20 calls with up to 1,024 rows, after warm-up calls; `rows_per_second`
        is that of the median batch.
    """
    single = [_time(predict, table.slice(index % table.num_rows, 1)) for index in range(_WARM_UP + _SINGLE)]
    batch = table.slice(0, _BATCH)
    repeated = _quantiles([_time(predict, batch) for _ in range(_WARM_UP + _BATCHES)])
    return {
        "hardware": hardware(),
        "single_row_ms": _quantiles(single),
        "batch": {"rows": batch.num_rows, "ms": repeated},
        "rows_per_second": round(batch.num_rows / repeated["p50"] * 1000) if repeated["p50"] else 0,
    }


def hardware() -> str:
    """The class of this machine: processor model, and number of cores that this process may use."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    named = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return f"{named or platform.machine()}, {len(os.sched_getaffinity(0))} cores"


def _quantiles(times: list[float]) -> dict[str, float]:
    """Quantiles of all times but the first ones."""
    found = np.quantile(times[_WARM_UP:], list(_SHARES.values()))
    return {name: round(float(value), 3) for name, value in zip(_SHARES, found, strict=True)}


def _time(predict: Callable[[pa.Table], Any], rows: pa.Table) -> float:
    began = time.perf_counter()
    predict(rows)
    return (time.perf_counter() - began) * 1000
