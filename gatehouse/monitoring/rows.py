"""The rows to compare: the champion's training rows, the reference, and the newest rows with their labels."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import Field

from gatehouse.configuration.times import zoned
from gatehouse.errors import ConfigurationError, GatehouseError
from gatehouse.metrics.tasks import EXPECTED, TASKS, are_usable, declared_task
from gatehouse.monitoring.live_log import collect_live
from gatehouse.monitoring.spec import MonitoringSpec
from gatehouse.store.identity import Spec
from gatehouse.store.manifest import Column, Manifest
from gatehouse.store.reference import Reference
from gatehouse.store.stage import StageModel
from gatehouse.store.store import ArtifactStore
from gatehouse.training.model_spec import learned_parts

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from gatehouse.metrics.metric import Predictions
    from gatehouse.monitoring.decision import Finding
    from gatehouse.monitoring.movement import Numbers

TIME = "decision_time"
LOG_TABLE = "predictions"
"""Name of a log's table in a snapshot."""
UNLABELLED_ROWS = "rows set aside, as they have no label"
FEATURELESS_ROWS = "logged rows left out, as they lack features and a label"
"""Names of facts that count rows which are not compared."""
_MATCHED, _ROW = "__matched", "__row"
_LEAST_MATCHED = 0.1
"""Share of logged rows that must be known decisions, where decisions are known: with a wrong clock next to none is."""


class MissingColumnError(GatehouseError):
    """The newest rows lack a column that the model was trained on."""

    permanent = True


LATEST, LIVE = "latest", "live"


class ComparedColumns(Spec):
    """The columns of two tables of any origin that are compared."""

    features: tuple[str, ...] = Field(
        (),
        description="The columns to compare; empty for all numbers and categories that the baseline has besides, "
        "without those that have another value in each row.",
    )
    label: str = Field("", description="Column of labels, null while they are not known; empty for none.")
    score: str = Field("", description="Column of predictions, or the beginning of one for each class.")
    task: str = Field("binary", description="binary, multiclass, regression or ranking.")
    positive: str = Field("", description="The positive one of two classes with names.")
    event_time: str = Field("", description="Column with the time of each row; empty if rows are independent.")
    group: str = Field("", description="Column of the rows that are ranked together; empty for none.")


class MonitorRequest(StageModel):
    """The newest rows, and a champion that was trained on earlier ones, or a table with such rows.

    Attributes:
        current: The newest rows: a training set, or of a `baseline` any table.
        model: The champion; its lineage names the rows that it was trained on.
        baseline: A table of any origin in place of the champion.
        columns: The columns of these two tables.
        since: Only rows decided from this time on, ISO 8601; empty for all after the last train row.
        evaluation: The champion's evaluation at the gate; empty for none.
        predictions: A log of predictions with their features; empty to score the newest rows with the champion.
        unlabelled: Decisions whose label is not known yet, with their features, for checks that need no label; empty
            for none.
    """

    current: str
    model: str = ""
    baseline: str = ""
    columns: ComparedColumns = ComparedColumns()
    since: str = ""
    until: str = ""
    evaluation: str = ""
    predictions: str = ""
    unlabelled: str = ""
    stale: tuple[str, ...] = ()
    spec: MonitoringSpec


@dataclass(frozen=True)
class Rows:
    """The rows to compare, with the details of the champion's training set and counts for the report.

    The label of `current` is null while it is not known. `logged` says whether `current` comes from a log, and holds
    the predictions. With a `problem` of this log nothing is judged.
    """

    details: Mapping[str, Any]
    trained: "pa.Table"
    reference: "pa.Table"
    current: "pa.Table"
    labelled: "pa.Table"
    logged: bool
    facts: Mapping[str, str | int]
    problem: str = ""

    @property
    def features(self) -> dict[str, str]:
        """The kind of each feature, by name."""
        kinds = ("numeric", "categorical")
        return {name: kind for kind in kinds for name in self.details[kind]}

    @property
    def label(self) -> str:
        """Name of the label's column."""
        return str(self.details["label"])

    @property
    def task(self) -> str:
        """Name of the task."""
        return declared_task(self.details).name

    def blocks(self, min_rows: int) -> "Numbers":
        """Number of each reference row's block of the newest rows' length; -1 for none, shape (rows,)."""
        from gatehouse.monitoring.movement import blocks_of

        now = moments(self.current)
        return blocks_of(moments(self.reference), now.max() - now.min(), min_rows)

    def units(self, unit: str) -> "tuple[Numbers, Numbers]":
        """The unit of each reference row and each newest row: rows of one unit depend on each other."""
        return units_of(self.reference, unit), units_of(self.current, unit)


@dataclass(frozen=True)
class Gate:
    """A metric in the champion's evaluation, and its standard error from the 95 % interval.

    `unit` is what the interval was sampled by, such as `row` or `day`; empty if unknown. `place` says where it was.
    """

    value: float
    error: float
    unit: str = ""
    place: str = "at the gate"


@dataclass(frozen=True)
class Scored:
    """Predictions for the rows to compare, and a metric's earlier value by its name; computed when they are needed."""

    before: "Callable[[], Predictions]"
    now: "Callable[[], Predictions]"
    labelled: "Callable[[Any], Predictions]"
    gate: Callable[[str], Gate | None]


@dataclass(frozen=True)
class Comparison:
    """All that the checks need.

    Attributes:
        scored: None without predictions on both sides.
        importance: Importance by feature, computed when it is needed; empty if all weigh the same.
        remarks: Findings that no check has made.
    """

    spec: MonitoringSpec
    rows: Rows
    scored: Scored | None
    importance: Callable[[], Mapping[str, float]] = dict
    remarks: "Sequence[Finding]" = ()


def read_rows(request: MonitorRequest, store: ArtifactStore) -> Rows:
    """Read the rows to compare; `monitor` lists the errors."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    spec, model, newest = request.spec, store.manifest(request.model), store.manifest(request.current)
    if not {"training_set", "split"} <= model.derived_from.keys():
        raise ConfigurationError(
            f"model: expected a model of `train`, whose lineage names its rows, found {request.model}. Compare the "
            "newest rows with a table of the earlier ones (`baseline`)."
        )
    manifest, split = store.manifest(model.derived_from["training_set"]), model.derived_from["split"]
    details, keys = manifest.details, [*newest.details.get("entity_keys", ()), TIME]
    needed = [*details["numeric"], *details["categorical"], details["label"], TIME]
    present = {column.name for column in newest.columns}
    if missing := [name for name in needed if name not in present]:
        raise MissingColumnError(
            f"{newest.reference}: expected the columns of {manifest.reference}, found no {', '.join(missing)}."
        )
    classes, now = (list(side.details.get("classes", ())) for side in (manifest, newest))
    if classes != now[: len(classes)]:
        raise ConfigurationError(
            f"{newest.reference} has the classes {', '.join(now) or 'without names'}, expected the list to begin with "
            f"the classes of {manifest.reference}: {', '.join(classes)}."
        )
    significance = spec.data_drift.significance if spec.data_drift else None
    extra = [*keys, details.get("group") or TIME, significance.unit if significance else ""]
    extra.append(spec.performance.resample_by if spec.performance else "")
    columns = [*dict.fromkeys([*needed, *(name for name in extra if name in present)])]
    trained = pq.ParquetDataset(store.paths(manifest.reference)).read(
        columns=[column.name for column in manifest.columns if column.name in columns]
    )
    parts = [pq.read_table(store.path(split, f"{part}.parquet")) for part in learned_parts(model.configuration)]
    trained = trained.take(pa.concat_tables(parts)["row"])
    every = pq.ParquetDataset(store.paths(request.current)).read(columns=columns)
    last = pc.max(trained[TIME]).cast(every[TIME].type)
    facts: dict[str, str | int] = {"train rows": trained.num_rows}
    current, problem = every, ""
    if request.unlabelled:
        present = {column.name for column in store.manifest(request.unlabelled).columns}
        unlabelled = pq.ParquetDataset(store.paths(request.unlabelled)).read(
            columns=[name for name in columns if name in present]
        )
        current = pa.concat_tables([every, unlabelled], promote_options="permissive")
    if request.predictions:
        current, problem = _logged(request, store, current, keys, needed, len(classes), facts)
    else:
        set_aside = sum(int(count) for count in newest.details.get("set_aside", {}).values())
        facts[UNLABELLED_ROWS] = set_aside - (current.num_rows - every.num_rows)
    current = _between(current, request.since, request.until, last)
    labelled = current.filter(pc.is_valid(current[details["label"]]))
    facts |= {"newest rows": current.num_rows, "of these with a known label": labelled.num_rows}
    if request.predictions or request.unlabelled:
        facts["of these whose label is not known yet"] = current.num_rows - labelled.num_rows
    if current.num_rows:
        first, latest = pc.min(current[TIME]).as_py(), pc.max(current[TIME]).as_py()
        facts |= {"decided from": first.isoformat(), "to": latest.isoformat()}
    facts["labelled rows after the last train row"] = _between(every, "", request.until, last).num_rows
    reference = _reference(spec, trained, every, current)
    facts["rows of the reference"] = reference.num_rows
    return Rows(details, trained, reference, current, labelled, bool(request.predictions), facts, problem)


def moments(table: "pa.Table") -> "npt.NDArray[np.datetime64]":
    """When each row was decided, in microseconds, shape (rows,)."""
    times: npt.NDArray[np.datetime64] = table[TIME].to_numpy().astype("datetime64[us]")
    return times


def units_of(table: "pa.Table", unit: str) -> "Numbers":
    """Number of each row's unit, from 0, shape (rows,): `day`, `week` (from Thursday), a column, or empty for rows.

    Raises ConfigurationError if there is no such column.
    """
    import numpy as np

    if not unit:
        return np.arange(table.num_rows)
    if unit in ("day", "week"):
        span = moments(table).astype(f"datetime64[{unit[0].upper()}]")
        return np.unique(span, return_inverse=True)[1].astype(np.int64)
    if unit not in table.column_names:
        raise ConfigurationError(
            f"monitoring.data_drift.significance.unit: expected `day`, `week` or a column of the training "
            f"set ({', '.join(table.column_names)}) whose rows are one unit, found {unit}."
        )
    encoded = table[unit].combine_chunks().dictionary_encode(null_encoding="encode").indices
    return np.asarray(encoded.to_numpy(zero_copy_only=False)).astype(np.int64)


def _logged(
    request: MonitorRequest,
    store: ArtifactStore,
    every: "pa.Table",
    keys: list[str],
    needed: list[str],
    classes: int,
    facts: dict[str, str | int],
) -> "tuple[pa.Table, str]":
    """The rows of the log, with known labels, and why they cannot be judged.

    Features that were not logged are taken from the labelled rows. Of a log that cannot be read there are no rows.
    """
    import pyarrow as pa

    newest = store.manifest(request.current).details
    task = declared_task(newest).name
    log = read_log(store, request.predictions, request.model, task, keys)
    facts |= {"logged rows": log.table.num_rows, "of these, left out as repeated": log.repeated}
    if log.foreign_rows:
        facts["logged rows of other models"] = log.foreign_rows
    if problem := _log_problem(log.table, task, classes):
        return every.slice(0, 0), problem
    lacking = [name for name in every.column_names if name not in log.table.column_names]
    matches = pa.nulls(every.num_rows, pa.bool_()).fill_null(True)
    joined = with_labels(log.table, every.select([*keys, *lacking]).append_column(_MATCHED, matches), keys)
    matched = joined.filter(joined[_MATCHED].is_valid()).drop_columns(_MATCHED)
    known = moments(every)
    same_span = (moments(joined) >= known.min()) & (moments(joined) <= known.max()) if len(known) else known == known
    if request.spec.min_rows <= (expected := int(same_span.sum())) and matched.num_rows < _LEAST_MATCHED * expected:
        problem = (
            f"predictions: expected known decisions, found {matched.num_rows:,} of the {expected:,} logged rows with "
            f"the {', '.join(keys)} of one. Compare the clock and the zone of the log with those of the decisions"
        )
    unlogged = [name for name in lacking if name in needed and name != newest["label"]]
    if not unlogged:
        return joined.drop_columns(_MATCHED), problem
    facts["features that were not logged"] = ", ".join(unlogged)
    facts[FEATURELESS_ROWS] = joined.num_rows - matched.num_rows
    return matched, problem


def _log_problem(log: "pa.Table", task: str, classes: int) -> str:
    """Why the rows of a log cannot be judged; empty if they can. `classes` are those with names, 0 for none."""
    import numpy as np
    import pyarrow as pa

    if not log.num_rows:
        return "predictions: expected logged rows of the champion, found none"
    kind = log.schema.field(TIME).type
    if not pa.types.is_timestamp(kind) or kind.tz is None:
        return f"predictions: {TIME}: expected times with a zone, found {kind}. Naive times may be of any zone"
    if missing := log[TIME].null_count:
        return f"predictions: {TIME}: expected a time in each row, found {missing:,} nulls in {log.num_rows:,} rows"
    output = TASKS[task].output
    try:
        scores = predicted(log, task)
    except pa.ArrowException:
        return f"predictions: {output}: expected numbers, found {log.schema.field(output).type}"
    if scores.ndim == 2 and classes and scores.shape[1] != classes:
        return f"predictions: {output}: expected {classes} probabilities in each row, found {scores.shape[1]}"
    wrong = np.flatnonzero(~are_usable(scores, output))
    if len(wrong):
        value = log[output][int(wrong[0])]
        return f"predictions: {output}: expected {EXPECTED[output]}, found {len(wrong):,} others, the first {value}"
    return ""


def _between(table: "pa.Table", since: str, until: str, last: "pa.Scalar") -> "pa.Table":
    """Rows decided in [since, until); after the last train row if `since` is empty."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = table[TIME].type
    if since:
        table = table.filter(pc.greater_equal(table[TIME], pa.scalar(zoned("since", since), kind)))
    else:
        table = table.filter(pc.greater(table[TIME], last.cast(kind)))
    return table.filter(pc.less(table[TIME], pa.scalar(zoned("until", until), kind))) if until else table


def _reference(spec: MonitoringSpec, trained: "pa.Table", every: "pa.Table", current: "pa.Table") -> "pa.Table":
    """The rows that the newest rows are compared with."""
    import numpy as np

    if spec.reference.window == "training" or not current.num_rows:
        return trained
    now, times = moments(current), moments(every)
    start, end = now.min(), now.max()
    if spec.reference.window == "trailing":
        inside = (times < start) & (times >= start - np.timedelta64(spec.reference.days, "D"))
    else:
        year = np.timedelta64(365, "D")
        inside = (times >= start - year) & (times <= end - year)
    return every.filter(inside)


@dataclass(frozen=True)
class Log:
    """A log: keys, decision time, the prediction, and the features if they were logged.

    The table lacks `foreign_rows` predicted by other models, and `repeated`, rows with keys and time of an earlier row.
    """

    table: "pa.Table"
    foreign_rows: int
    repeated: int


def read_log(store: ArtifactStore, reference: str, model: str, task: str, keys: list[str]) -> Log:
    """Read a log: predictions of batch scoring, or a snapshot with a table named `predictions`.

    Rows that name another model are left out. `keys` are the columns that identify a row, with the decision time.
    Raises ConfigurationError if the log lacks a key or the prediction.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    manifest = store.manifest(reference)
    tables = manifest.derived_from
    if manifest.reference.kind not in ("predictions", "prediction-logs"):
        if LOG_TABLE not in tables:
            raise ConfigurationError(
                f"{reference}: expected a log of predictions, or a snapshot with a table named {LOG_TABLE}, found "
                f"{', '.join(tables) or 'no table'}."
            )
        reference = tables[LOG_TABLE]
    table, needed = pq.ParquetDataset(store.paths(reference)).read(), [*keys, TASKS[task].output]
    if lacking := [name for name in needed if name not in table.column_names]:
        raise ConfigurationError(
            f"{reference}: expected a log with the columns {', '.join(needed)}, found no {', '.join(lacking)}."
        )
    rows = table.num_rows
    if "model" in table.column_names:
        table = table.filter(pc.equal(table["model"].cast(pa.string()), model))
    scoring = ("model", "model_version", "positive", "class")
    table = table.drop_columns([name for name in scoring if name in table.column_names])
    own = table.num_rows
    if not own:  # An empty column may have no type, and then no join.
        return Log(table, rows, 0)
    if scored := tables.get("rows"):
        features = pq.ParquetDataset(store.paths(scored)).read()
        features = features.select([name for name in features.column_names if name not in needed or name in keys])
        table = with_labels(table, features, keys)
    table = _firsts(table, keys)
    return Log(table, rows - own, own - table.num_rows)


def with_labels(log: "pa.Table", labelled: "pa.Table", keys: list[str]) -> "pa.Table":
    """The log with the other columns of `labelled`, such as the label; null for rows that `labelled` lacks.

    It is a left join in the order of the log; the first row of each key counts, and keys take the types of the log.
    """
    import pyarrow as pa

    labelled = _firsts(labelled, keys)
    cast = labelled.select(keys).cast(log.select(keys).schema)
    left, right = (
        side.append_column(_ROW + name, pa.array(range(side.num_rows)))
        for side, name in ((log.select(keys), "left"), (cast, "right"))
    )
    joined = left.join(right, keys=keys, join_type="left outer").sort_by(_ROW + "left")
    matched = labelled.take(joined[_ROW + "right"])
    for name in labelled.column_names:
        if name not in keys:
            log = log.append_column(name, matched[name])
    return log


def _firsts(table: "pa.Table", keys: list[str]) -> "pa.Table":
    """The first row of each key, in order."""
    import pyarrow as pa
    import pyarrow.compute as pc

    numbered = table.select(keys).append_column(_ROW, pa.array(range(table.num_rows)))
    first = numbered.group_by(keys).aggregate([(_ROW, "min")])[f"{_ROW}_min"]
    return table.take(first.take(pc.sort_indices(first)))


def predicted(log: "pa.Table", task: str) -> "npt.NDArray[np.float64]":
    """The predictions of a log, shape (rows,), or (rows, classes) with several classes; NaN where one is missing."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    column = log[TASKS[task].output].combine_chunks()
    if pa.types.is_fixed_size_list(column.type) or pa.types.is_list(column.type):
        sizes = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
        scores = np.full((log.num_rows, int(sizes.max(initial=0))), np.nan)
        whole = sizes == scores.shape[1]
        flat = pc.cast(pc.list_flatten(column.filter(pa.array(whole & (sizes > 0)))), pa.float64())
        scores[whole] = flat.to_numpy(zero_copy_only=False).reshape(-1, scores.shape[1])
        return scores
    return np.asarray(pc.cast(column, pa.float64()).to_numpy(zero_copy_only=False))


def collect_log(store: ArtifactStore, log: str, model: str, since: str = "", until: str = "") -> str:
    """Reference of a log of predictions, which is published if it is outside the store; empty if `log` is.

    Args:
        log: A reference of predictions, or of a snapshot with a table `predictions`; `latest` for the newest
            predictions of the champion by batch scoring; `live` for what its predictors answered; or the path or URL
            of a Parquet file or a folder of them.
        model: The champion.
        since: With `live`: only rows decided from this time on, ISO 8601; empty for all.
        until: With `live`: only rows decided before this time; empty for all.

    Raises ConfigurationError if there is no log at the given location.
    """
    if not log:
        return ""
    import fsspec
    import pyarrow.parquet as pq

    name = Reference.parse(model).name
    if log == LIVE:
        return collect_live(store, name, model, since, until)
    if log == LATEST:
        # The champion's predictions with the latest `as_of`; among equal ones, those with the most rows.
        references = (reference for reference in store.references("predictions") if reference.name == name)
        manifests = [store.manifest(reference) for reference in references]
        manifests = [manifest for manifest in manifests if manifest.derived_from.get("model") == model]
        if not manifests:
            raise ConfigurationError(f"predictions: expected predictions of {model}, found none in the store.")

        def recency(manifest: Manifest) -> tuple[str, int, str]:
            return str(manifest.details.get("as_of", "")), manifest.rows or 0, str(manifest.reference)

        return str(max(manifests, key=recency).reference)
    if "/sha256-" in log:
        return str(Reference.parse(log))
    # Parquet files are published unchanged, in the order of their names.
    files, root = fsspec.core.url_to_fs(log)
    paths = [root] if files.isfile(root) else sorted(files.glob(f"{root.rstrip('/')}/**/*.parquet"))
    if not paths:
        raise ConfigurationError(f"predictions: expected Parquet files at {log}, found none.")
    with store.workspace() as workspace:
        files_by_name = {}
        for number, path in enumerate(paths):
            target = workspace / f"part-{number:05d}.parquet"
            files.get_file(path, str(target))
            files_by_name[target.name] = target
        rows = {part: pq.read_metadata(target).num_rows for part, target in files_by_name.items()}
        schema = pq.read_schema(next(iter(files_by_name.values())))
        columns = [Column(field.name, str(field.type), field.nullable) for field in schema]
        return str(
            store.publish(
                "prediction-logs", name, {**files_by_name}, columns=columns, rows=sum(rows.values()), rows_per_file=rows
            )
        )
