"""The split stage: a training set becomes index files of its parts and folds, a report, and checks for leakage."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from gatehouse.components.artifacts.canonical import canonical_json
from gatehouse.components.artifacts.manifest import Column
from gatehouse.components.artifacts.reference import Reference
from gatehouse.components.artifacts.stage import StageModel, stage
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.splitting.spec import SplitSpec
from gatehouse.errors import LeakageError

if TYPE_CHECKING:
    from gatehouse.components.splitting.checks import Check, Subject
    from gatehouse.components.splitting.partition import Partition, Rows
    from gatehouse.components.splitting.training_set import TrainingSet


class SplitRequest(StageModel):
    """A training set and the strategy that divides it."""

    training_set: str
    spec: SplitSpec


class SplitResult(StageModel):
    """The split, the rows of each part, and how many are in none, by reason; and the status of each check."""

    split: str
    rows: dict[str, int]
    checks: dict[str, str]


@stage("split", title="Split")
def split(request: SplitRequest, store: ArtifactStore) -> SplitResult:
    """Divide a training set.

    The artifact holds `train.parquet`, `validation.parquet` and `test.parquet`, each with the row numbers (`row`,
    int64, ascending) of its part; where the strategy has folds, `folds/<k>/train.parquet` and
    `folds/<k>/validation.parquet`, k from 0, of which the last are the split's own; `checks.json` and `report.html`.

    Raises:
        ConfigurationError: if the training set has not the columns that the strategy reads.
        LeakageError: listing every check that ends the run: a part is empty or has one class only, or does not keep
            what its strategy promises.
    """
    from gatehouse.components.splitting.checks import as_json, run_checks
    from gatehouse.components.splitting.divide import divide
    from gatehouse.components.splitting.report import split_report
    from gatehouse.components.splitting.training_set import TrainingSet

    training_set = TrainingSet.open(store, request.training_set)
    training_set.require_roles()
    divided = divide(request.spec, training_set)
    problems = [*divided.problems, *_repeated(training_set, divided.partition)]
    if problems:
        raise _refused(request.training_set, problems)
    subject = _subject(request.spec, training_set, divided.partition)
    checks = run_checks(subject)
    broken = [f"{one.name}: {text}" for one in checks if one.ends_the_run for text in one.said]
    if broken:
        raise _refused(request.training_set, broken)
    facts = _facts(subject)
    documents = {
        "checks.json": canonical_json(as_json(checks, request.spec.checks)),
        "report.html": split_report(request.training_set, subject, checks),
    }
    reference = _publish(request, store, divided.partition, documents, facts | {"checks": _statuses(checks)})
    return SplitResult(split=str(reference), rows=facts["rows"], checks=_statuses(checks))


def _refused(training_set: str, problems: list[str]) -> LeakageError:
    listed = "".join(f"\n  - {problem}" for problem in problems)
    return LeakageError(
        f"{Reference.parse(training_set)} is not divided, for {len(problems)} reasons:{listed}\nCorrect the strategy "
        "in `split`, or the training set; `split.checks.severity` says what a failed check means."
    )


def _repeated(training_set: "TrainingSet", partition: "Partition") -> list[str]:
    """Rows that decide the same thing twice: their copies could be on two sides."""
    import numpy as np

    keys = [*training_set.entity_keys, training_set.decision_time]
    if not all(training_set.has(name) for name in keys) or not training_set.entity_keys:
        return []
    inside = np.concatenate(list(partition.parts.values()))
    hashes = np.sort(training_set.hashes(keys, 0)[0][inside])
    repeated = int((hashes[1:] == hashes[:-1]).sum())
    words = f"{repeated} rows repeat the entity keys {', '.join(training_set.entity_keys)} and decision time of another"
    return [f"{words} row"] if repeated else []


def _subject(spec: SplitSpec, training_set: "TrainingSet", partition: "Partition") -> "Subject":
    from gatehouse.components.splitting.checks import Subject

    times = (training_set.decision_time, training_set.label_time)
    decision, known = (training_set.times(name) if training_set.has(name) else None for name in times)
    return Subject(spec, training_set, partition, training_set.labels(), decision, known)


def _statuses(checks: "list[Check]") -> dict[str, str]:
    return {one.name: one.status for one in checks}


def _facts(subject: "Subject") -> dict[str, Any]:
    import numpy as np

    parts = subject.parts
    rows = {name: len(part) for name, part in parts.items()} | subject.partition.left_out
    facts: dict[str, Any] = {
        "rows": rows,
        "label_rate": {name: round(float(np.mean(subject.labels[part])), 6) for name, part in parts.items()},
        "folds": subject.partition.folds,
    }
    if subject.decision is not None:
        facts["first"] = {name: str(subject.decision[part].min()) for name, part in parts.items()}
        facts["last"] = {name: str(subject.decision[part].max()) for name, part in parts.items()}
    return facts


def _publish(
    request: SplitRequest,
    store: ArtifactStore,
    partition: "Partition",
    documents: dict[str, str],
    facts: dict[str, Any],
) -> Reference:
    reference = Reference.parse(request.training_set)
    with store.workspace() as workspace:
        files: dict[str, Path | bytes | str] = dict(documents)
        counts: dict[str, int] = {}
        for name, rows in partition.parts.items():
            files[f"{name}.parquet"], counts[f"{name}.parquet"] = _write(workspace, f"{name}.parquet", rows), len(rows)
        for number, fold in partition.every_fold():
            for name, rows in fold.items():
                path = f"folds/{number}/{name}.parquet"
                files[path], counts[path] = _write(workspace, path, rows), len(rows)
        return store.publish(
            "splits",
            reference.name,
            files,
            columns=[Column("row", "int64", False)],
            rows=sum(len(rows) for rows in partition.parts.values()),
            rows_per_file=counts,
            derived_from={"training_set": reference},
            configuration=request.spec.model_dump(mode="json"),
            details=facts,
        )


def _write(workspace: Path, name: str, rows: "Rows") -> Path:
    """Row numbers as differences: they ascend, so a few bits each are enough."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = workspace / name
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table({"row": rows}, schema=pa.schema([pa.field("row", pa.int64(), nullable=False)]))
    encoding = {"row": "DELTA_BINARY_PACKED"}
    pq.write_table(table, path, compression="zstd", use_dictionary=False, column_encoding=encoding)
    return path
