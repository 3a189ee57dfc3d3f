"""Evidently's preset for data drift on pairs of Parquet files; prints the drifted columns and the seconds of each.

`evidently_drift.py FOLDER METHOD`: the folder holds `reference.parquet` and files `current-<n>.parquet`. METHOD is a
test of evidently for numbers, such as `ks`, or empty for its own choice.
"""

import json
import sys
import time
import warnings
from pathlib import Path

import pandas as pd

warnings.filterwarnings("ignore")
from evidently import Report  # noqa: E402
from evidently.presets import DataDriftPreset  # noqa: E402


def main() -> None:
    folder, method = Path(sys.argv[1]), sys.argv[2]
    reference = pd.read_parquet(folder / "reference.parquet")
    preset = DataDriftPreset(num_method=method, cat_method="chisquare") if method else DataDriftPreset()
    reports = []
    for path in sorted(folder.glob("current-*.parquet")):
        current = pd.read_parquet(path)
        began = time.perf_counter()
        results = Report([preset]).run(current, reference).dict()["metrics"]
        seconds = time.perf_counter() - began
        drifted = [metric["config"]["column"] for metric in results if _drifted(metric, bool(method))]
        reports.append({"name": path.stem, "drifted": drifted, "seconds": seconds})
    print(json.dumps(reports))


def _drifted(metric: dict, tested: bool) -> bool:
    """Of a p-value whether it is below the threshold, of a distance whether it is above."""
    if not metric["config"]["type"].endswith("ValueDrift"):
        return False
    value, threshold = float(metric["value"]), float(metric["config"].get("threshold") or (0.05 if tested else 0.1))
    return value < threshold if tested else value >= threshold


if __name__ == "__main__":
    main()
