"""The split stage: a training set becomes index files of its parts and folds, and is checked for leakage."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from gatehouse.data.splitting.spec import SplitSpec
from gatehouse.errors import ConfigurationError, GatehouseError, LeakageError
from gatehouse.runtime.plural import counted
from gatehouse.store.canonical import canonical_json
from gatehouse.store.identity import identity_of
from gatehouse.store.manifest import Column, FileEntry
from gatehouse.store.reference import Reference
from gatehouse.store.stage import StageModel, stage
from gatehouse.store.store import ArtifactStore

if TYPE_CHECKING:
    from gatehouse.data.splitting.divide import Partition, Rows
    from gatehouse.data.splitting.training_set import TrainingSet


class SplitRequest(StageModel):
    """A training set and the strategy that divides it."""

    training_set: str
    spec: SplitSpec


class SplitResult(StageModel):
    """The split.

    Attributes:
        folds: Reference of the folds; empty where the strategy has none.
        rows: Rows of each part, and rows in no part, by reason.
    """

    split: str
    folds: str = ""
    split_checks: str
    rows: dict[str, int]
    checks: dict[str, str]
    warnings: tuple[str, ...] = ()


@stage(
    "split",
    title="Split",
    pages={"split-checks": "gatehouse.data.splitting.report:page"},
)
def split(request: SplitRequest, store: ArtifactStore) -> SplitResult:
    """Divide a training set.

    Three artifacts are published, so that what reads the parts does not change with a check or a figure:

    - `splits`: `train.parquet`, `validation.parquet` and `test.parquet`, each with the row numbers (`row`, int64,
      ascending) of its part.
    - `folds`, where the strategy has any: `<k>/train.parquet` and `<k>/validation.parquet`, k from 0, in the same form;
      the last fold's parts are the split's own.
    - `split-checks`: `checks.json` with the outcome of each check and what `measures` gives, for the page.

    Raises:
        ConfigurationError: if the training set lacks a column that the strategy reads, or nothing is wrong but that a
            part is empty or has one class only.
        LeakageError: listing every check that ends the run: a part does not keep what its strategy promises.
    """
    from gatehouse.data.splitting.checks import (
        COULD_NOT_RUN,
        FAILED,
        USABLE,
        CheckedSplit,
        measures,
        run_checks,
        without_values,
    )
    from gatehouse.data.splitting.divide import divide
    from gatehouse.data.splitting.training_set import TrainingSet

    def refusal(kind: type[GatehouseError], problems: list[str], advice: str) -> GatehouseError:
        lines = "".join(f"\n  - {problem}" for problem in problems)
        name = Reference.parse(request.training_set)
        error = kind(f"{name} is not divided, for {counted(len(problems), 'reason')}:{lines}{advice}")
        error.reasons = tuple(problems)
        return error

    advice = "\nCorrect the strategy in `split`, or the training set; see `split.checks.severity`."
    training_set = TrainingSet.open(store, request.training_set)
    training_set.require([training_set.label, *training_set.features])
    partition = divide(request.spec, training_set)
    if problems := [*partition.problems, *_repeated(training_set, partition)]:
        raise refusal(LeakageError, problems, advice)
    checked = CheckedSplit.of(request.spec, training_set, partition)
    checks = run_checks(checked)
    if broken := [check for check in checks if check.ends_the_run]:
        messages = [text for check in broken for text in check.named_messages]
        if broken[0].name == USABLE and all(check.status == COULD_NOT_RUN for check in broken[1:]):
            # Nothing leaks, but `split` and the rows do not fit each other: a part has no rows, or one label.
            raise refusal(ConfigurationError, messages, ".")
        raise refusal(LeakageError, messages, advice)
    parts = _publish("splits", request, store, ((f"{name}.parquet", rows) for name, rows in partition.parts.items()))
    failed = (text for check in checks if check.status == FAILED for text in check.named_messages)
    warnings = (*failed, *without_values(checked))
    report = store.publish(
        "split-checks",
        parts.name,
        {"checks.json": canonical_json({"checks": [vars(check) for check in checks]} | measures(checked))},
        derived_from={"split": parts, "training_set": request.training_set},
        configuration=identity_of(request.spec),
        details={"verdict": "pass", "warnings": list(warnings)},
    )
    folds = (
        (f"{number}/{name}.parquet", rows) for number, fold in partition.every_fold() for name, rows in fold.items()
    )
    return SplitResult(
        split=str(parts),
        folds=str(_publish("folds", request, store, folds)) if partition.folds else "",
        split_checks=str(report),
        rows={name: len(rows) for name, rows in partition.parts.items()} | partition.left_out,
        checks={check.name: check.status for check in checks},
        warnings=warnings,
    )


def _repeated(training_set: "TrainingSet", partition: "Partition") -> list[str]:
    """Rows that decide the same thing twice: their copies could be on two sides."""
    import numpy as np

    keys = [*training_set.entity_keys, training_set.decision_time]
    if not all(training_set.has(name) for name in keys) or not training_set.entity_keys:
        return []
    hashes = training_set.hashes(keys, 0)[0]
    if partition.left_out:
        inside = np.zeros(training_set.rows, np.bool_)
        for rows in partition.parts.values():
            inside[rows] = True
        hashes = hashes[inside]
    hashes.sort()
    repeated = int((hashes[1:] == hashes[:-1]).sum())
    words = f"{repeated} rows repeat the entity keys {', '.join(training_set.entity_keys)} and decision time of another"
    return [f"{words} row"] if repeated else []


def _publish(kind: str, request: SplitRequest, store: ArtifactStore, parts: "Iterable[tuple[str, Rows]]") -> Reference:
    """Publish row numbers by file. One part is in memory at a time: folds are large together."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with store.workspace() as workspace:
        files: dict[str, Path | bytes | str | FileEntry] = {}
        counts: dict[str, int] = {}
        for path, rows in parts:
            target = workspace / path
            target.parent.mkdir(parents=True, exist_ok=True)
            table = pa.table({"row": rows}, schema=pa.schema([pa.field("row", pa.int64(), nullable=False)]))
            # Row numbers ascend, so their differences take a few bits each.
            encoding = {"row": "DELTA_BINARY_PACKED"}
            pq.write_table(table, target, compression="zstd", use_dictionary=False, column_encoding=encoding)
            files[path], counts[path] = target, len(rows)
        return store.publish(
            kind,
            Reference.parse(request.training_set).name,
            files,
            columns=[Column("row", "int64", False)],
            rows=sum(counts.values()),
            rows_per_file=counts,
            derived_from={"training_set": request.training_set},
            configuration={name: value for name, value in identity_of(request.spec).items() if name != "checks"},
        )
