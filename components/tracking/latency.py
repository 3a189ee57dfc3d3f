"""How long a model takes to answer. A measurement: it varies, so it is kept beside the evaluation, never in it."""

import os
import platform
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

_CALLS, _WARM_UP, _BATCH = 50, 5, 1024


def measure_latency(predict: Callable[[pa.Table], Any], table: pa.Table) -> dict[str, Any]:
    """Latency of single rows and of a batch, in milliseconds, with the class of hardware that it was measured on.

    Args:
        predict: From a table of raw features to scores.
        table: Rows to score, at least one.
    """
    single = [_time(predict, table.slice(index % table.num_rows, 1)) for index in range(_WARM_UP + _CALLS)]
    batch = table.slice(0, _BATCH)
    repeated = [_time(predict, batch) for _ in range(_WARM_UP)]
    p50, p99 = np.quantile(single[_WARM_UP:], (0.5, 0.99))
    return {
        "hardware": f"{platform.machine()}, {os.cpu_count()} cores",
        "single_row_ms": {"p50": round(float(p50), 3), "p99": round(float(p99), 3)},
        "batch": {"rows": batch.num_rows, "ms": round(float(np.median(repeated)), 3)},
    }


def _time(predict: Callable[[pa.Table], Any], rows: pa.Table) -> float:
    began = time.perf_counter()
    predict(rows)
    return (time.perf_counter() - began) * 1000
