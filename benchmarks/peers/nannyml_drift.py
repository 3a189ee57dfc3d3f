"""NannyML's drift of single columns on pairs of Parquet files; prints the drifted columns and the seconds of each.

`nannyml_drift.py FOLDER METHOD`: the folder holds `reference.parquet` and files `current-<n>.parquet`. METHOD is one of
NannyML's for numbers, with its own threshold; the reference is cut into chunks as long as the file.
"""

import json
import os
import sys
import time
import warnings
from pathlib import Path

import pandas as pd

os.environ["NML_DISABLE_USAGE_LOGGING"] = "1"
warnings.filterwarnings("ignore")
import nannyml as nml  # noqa: E402 - it reads the variable as it is imported


def main() -> None:
    folder, method = Path(sys.argv[1]), sys.argv[2]
    reference = pd.read_parquet(folder / "reference.parquet")
    columns, fitted, reports = list(reference.columns), {}, []
    for path in sorted(folder.glob("current-*.parquet")):
        current = pd.read_parquet(path)
        began = time.perf_counter()
        if (rows := len(current)) not in fitted:
            calculator = nml.UnivariateDriftCalculator(columns, continuous_methods=[method], chunk_size=rows)
            fitted[rows] = calculator.fit(reference)
        results = fitted[rows].calculate(current).filter(period="analysis").to_df()
        drifted = [name for name in columns if results[(name, method, "alert")].any()]
        reports.append({"name": path.stem, "drifted": drifted, "seconds": time.perf_counter() - began})
    print(json.dumps(reports))


if __name__ == "__main__":
    main()
