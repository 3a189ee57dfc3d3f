"""alibi-detect's Kolmogorov-Smirnov detector on pairs of Parquet files; prints the drifted columns and the seconds.

`alibi_detect_drift.py FOLDER METHOD`: the folder holds `reference.parquet` and files `current-<n>.parquet`. METHOD is
`ks` or `cvm`, with the detector's own level and correction for the number of columns.
"""

import json
import sys
import time
from pathlib import Path

import pandas as pd
from alibi_detect.cd import CVMDrift, KSDrift


def main() -> None:
    folder, method = Path(sys.argv[1]), sys.argv[2]
    reference = pd.read_parquet(folder / "reference.parquet")
    detector = {"ks": KSDrift, "cvm": CVMDrift}[method](reference.to_numpy("float32"))
    results = []
    for path in sorted(folder.glob("current-*.parquet")):
        current = pd.read_parquet(path).to_numpy("float32")
        began = time.perf_counter()
        result = detector.predict(current, drift_type="batch")["data"]
        seconds = time.perf_counter() - began
        named = zip(reference.columns, result["p_val"], strict=True)
        drifted = [name for name, chance in named if chance < result["threshold"]]
        results.append({"name": path.stem, "drifted": drifted, "seconds": seconds})
    print(json.dumps(results))


if __name__ == "__main__":
    main()
