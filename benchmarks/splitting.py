"""Dividing millions of rows: our hash and strata beside scikit-learn's splitters on the same rows, as ratios.

Ours reads the key columns from Parquet and hashes them; scikit-learn is given arrays that are in memory already, with
the groups as integers. Each contestant runs in turn, several rounds; medians of CPU time. Last, the whole stage with
every check, in a process of its own, with its peak memory.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import TypeAdapter

from gatehouse.data.splitting.divide import divide
from gatehouse.data.splitting.spec import SplitSpec
from gatehouse.data.splitting.training_set import TrainingSet
from gatehouse.store.manifest import Manifest
from gatehouse.store.store import ArtifactStore

GROUPS, NUMERIC, CATEGORICAL = 200_000, 15, 4
_STAGE = """
import json, resource, sys, time
from gatehouse.store.store import ArtifactStore
from gatehouse.data.splitting.stage import SplitRequest, split
began = time.process_time()
request = SplitRequest(training_set=sys.argv[2], spec=json.loads(sys.argv[3]))
split(request, ArtifactStore.open(sys.argv[1]))
print(time.process_time() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def main() -> None:
    """Measure and print one line a contestant."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "rows.parquet"
        group, label = _write(path, options.rows)
        training_set = TrainingSet(_manifest(), [path])
        print(f"{options.rows:,} rows, {GROUPS:,} groups; CPU time, medians of {options.rounds}")
        for name, own_split, sklearn_split in _contests(training_set, group, label):
            seconds: dict[str, list[float]] = {"ours": [], "theirs": []}
            for _ in range(options.rounds):
                for who, contestant in (("ours", own_split), ("theirs", sklearn_split)):
                    began = time.process_time()
                    contestant()
                    seconds[who].append(time.process_time() - began)
            taken, other = (statistics.median(seconds[who]) for who in ("ours", "theirs"))
            print(f"{name:<52} {taken:6.2f} s against {other:6.2f} s: {taken / other:5.2f} x")
        _run_stage(Path(directory) / "store", path, options.rows)


def _manifest() -> Manifest:
    numeric, categorical = [f"n{number}" for number in range(NUMERIC)], [f"c{number}" for number in range(CATEGORICAL)]
    details = {"label": "label", "entity_keys": ["key"], "numeric": numeric, "categorical": categorical}
    return Manifest("training-sets", "benchmark", (), details=details)


def _write(path: Path, rows: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(7)
    group, label = generator.integers(0, GROUPS, rows), (generator.random(rows) < 0.25).astype(np.int8)
    moments = np.sort(generator.integers(0, 365 * 86_400_000_000, rows)).view("datetime64[us]")
    columns = {
        "key": pa.array(np.arange(rows)).cast(pa.string()),
        "group": pa.array(group).cast(pa.string()),
        "decision_time": pa.array(moments, pa.timestamp("us", "UTC")),
        "label_time": pa.array(moments + np.timedelta64(3, "h"), pa.timestamp("us", "UTC")),
        "label": label,
    }
    columns |= {f"n{number}": generator.normal(size=rows).astype(np.float32) for number in range(NUMERIC)}
    names = pa.array([f"category {number}" for number in range(50)])
    columns |= {f"c{number}": names.take(generator.integers(0, 50, rows)) for number in range(CATEGORICAL)}
    pq.write_table(pa.table(columns), path)
    return group, label


def _contests(
    training_set: TrainingSet, group: np.ndarray, label: np.ndarray
) -> list[tuple[str, Callable[[], object], Callable[[], object]]]:
    from sklearn.model_selection import GroupKFold, GroupShuffleSplit, StratifiedKFold, train_test_split

    rows = np.arange(len(group))
    adapter: TypeAdapter[SplitSpec] = TypeAdapter(SplitSpec)

    def gatehouse(**keys: object) -> Callable[[], object]:
        spec = adapter.validate_python(keys)

        def divided() -> object:
            partition = divide(spec, training_set)
            return [fold for _, fold in partition.every_fold()]

        return divided

    def thrice(stratify: np.ndarray | None) -> None:
        _, rest = train_test_split(rows, train_size=0.7, random_state=7, stratify=stratify)
        train_test_split(rest, train_size=0.5, random_state=7, stratify=None if stratify is None else label[rest])

    def grouped() -> None:
        _, rest = next(GroupShuffleSplit(1, train_size=0.7, random_state=7).split(rows, groups=group))
        next(GroupShuffleSplit(1, train_size=0.5, random_state=7).split(rest, groups=group[rest]))

    return [
        ("random, beside train_test_split", gatehouse(strategy="random"), lambda: thrice(None)),
        ("stratified, beside train_test_split(stratify)", gatehouse(strategy="stratified"), lambda: thrice(label)),
        ("group, beside GroupShuffleSplit", gatehouse(strategy="group", columns=["group"]), grouped),
        (
            "5 folds of groups, beside GroupKFold",
            gatehouse(strategy="k_fold", unit="group", columns=["group"], test_fraction=0.15),
            lambda: list(GroupKFold(5).split(rows, groups=group)),
        ),
        (
            "5 stratified folds, beside StratifiedKFold",
            gatehouse(strategy="k_fold", unit="stratified", test_fraction=0.15),
            lambda: list(StratifiedKFold(5, shuffle=True, random_state=7).split(rows, label)),
        ),
    ]


def _run_stage(folder: Path, path: Path, rows: int) -> None:
    store, manifest = ArtifactStore.open(folder), _manifest()
    with store.workspace() as workspace:
        part = workspace / "part-00000.parquet"
        part.write_bytes(path.read_bytes())
        reference = store.publish(manifest.kind, manifest.name, {part.name: part}, rows=rows, details=manifest.details)
    spec = '{"strategy":"group","columns":["group"]}'
    command = [sys.executable, "-c", _STAGE, store.address, str(reference), spec]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds, memory = (float(word) for word in ended.stdout.split())
    columns = NUMERIC + CATEGORICAL
    print(
        f"the stage by group, with all checks of {columns} features: {seconds:.1f} s of CPU, at most {memory:,.0f} MiB"
    )


if __name__ == "__main__":
    main()
