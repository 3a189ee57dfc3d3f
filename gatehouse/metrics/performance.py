"""Measures the latency of a model and the memory of a process; the results vary, so they are stored beside models."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gatehouse.runtime.limits import peak_memory
from gatehouse.tracking.provenance import hardware_class

if TYPE_CHECKING:
    import pyarrow as pa

_WARM_UP, _SINGLE, _BATCHES = 5, 200, 20
BATCH = 1024
"""Rows of a batch; no later row is read."""
_QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


def measure_latency(predict: "Callable[[pa.Table], Any]", table: "pa.Table") -> dict[str, Any]:
    """Latency of single rows and of a batch, in milliseconds, with the class of hardware that it was measured on.

    `predict` maps a table of raw features to scores. The result has quantiles over 200 calls with one row and 20 calls
    with up to 1,024 rows, after warm-up calls; `rows_per_second` is that of the median batch.
    """
    import numpy as np

    def quantiles(calls: int, rows: "Callable[[int], pa.Table]") -> dict[str, float]:
        times = []
        for number in range(_WARM_UP + calls):
            batch = rows(number)
            began = time.perf_counter()
            predict(batch)
            times.append((time.perf_counter() - began) * 1000)
        values = np.quantile(times[_WARM_UP:], list(_QUANTILES.values()))
        return {name: round(float(value), 3) for name, value in zip(_QUANTILES, values, strict=True)}

    single = quantiles(_SINGLE, lambda number: table.slice(number % table.num_rows, 1))
    batch = table.slice(0, BATCH)
    repeated = quantiles(_BATCHES, lambda _: batch)
    return {
        "hardware": hardware_class(),
        "single_row_ms": single,
        "batch": {"rows": batch.num_rows, "ms": repeated},
        "rows_per_second": round(batch.num_rows / repeated["p50"] * 1000) if repeated["p50"] else 0,
    }


def peak_memory_mb() -> float:
    """Peak memory of this process in megabytes."""
    return round(peak_memory() / 1e6, 1)
