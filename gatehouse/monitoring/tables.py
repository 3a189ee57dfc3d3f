"""The rows of two tables of any origin, as the checks of `monitor` read them."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gatehouse.errors import ConfigurationError
from gatehouse.evaluation.labelled_scores import LabelSpec, column_of, labels_of, named_classes, scores_of
from gatehouse.evaluation.result import require_usable
from gatehouse.metrics.arithmetic import NORMAL
from gatehouse.metrics.catalogue import metric_named
from gatehouse.metrics.metric import Array
from gatehouse.metrics.tasks import TASKS
from gatehouse.monitoring import checks
from gatehouse.monitoring.decision import DATA, UNKNOWN, Finding
from gatehouse.monitoring.rows import TIME, Comparison, Gate, MonitorRequest, Rows, Scored
from gatehouse.monitoring.spec import CHECKS, MonitoringSpec, PerformanceSpec
from gatehouse.store.parameters import checked
from gatehouse.store.store import ArtifactStore

_LABEL, _EPOCH = "__label", 1970


def compared_tables(request: MonitorRequest, store: ArtifactStore) -> Comparison:
    """Read the baseline and the current rows.

    Features weigh the same. Performance is compared with that of the baseline, where both have labels and scores.
    `monitor` lists the errors.
    """
    spec, columns, features = request.spec, request.columns, request.columns.features
    label, score, time = columns.label, columns.score, columns.event_time
    baseline, current = (pq.ParquetDataset(store.paths(side)).read() for side in (request.baseline, request.current))
    if spec.reference.window != "training" or not baseline.num_rows:
        raise ConfigurationError(
            "spec.reference.window: the baseline is what current rows are compared with: expected rows in it, and no "
            f"window; found {baseline.num_rows:,} rows and {spec.reference.window}."
        )
    baseline, current = _typed_like(baseline, current), _typed_like(current, baseline)
    tables = {"baseline": baseline, "current": current}
    scores = {score} - {""}
    if score and score not in baseline.column_names:  # One column for each class.
        scores = {name for name in baseline.column_names if name.startswith(f"{score}_")} or scores
    for side, table in tables.items():
        for role, name in (("label", label), ("score", score if score in scores else ""), ("event_time", time)):
            if name:
                column_of(table, name, f"{side}: {role}")
    if label in scores:
        raise ConfigurationError(f"score: expected another column than the label, found {label!r}.")
    if judged_apart := sorted({label, *scores}.intersection(features)):
        raise ConfigurationError(
            f"features: expected columns besides label and score, found {', '.join(judged_apart)}. Leave them out: "
            "their drift has checks of its own."
        )
    roles, kinds, ids = {label, *scores, time, columns.group}, {}, []
    for name in features or [field.name for field in baseline.schema if field.name not in roles and _kind(field)]:
        sides = [column_of(table, name, f"{side}: features") for side, table in tables.items()]
        kinds[name], now = (_kind(pa.field(name, side.type)) for side in sides)
        if not now or kinds[name] != now:
            types = f"{sides[0].type} in the baseline and {sides[1].type} now"
            raise ConfigurationError(f"features: {name}: expected numbers or categories on both sides, found {types}.")
        if not features and all(map(_numbers_rows, sides)):
            why = "each row has a value of its own, as of an id. Name it in features to compare it"
            ids.append(Finding(DATA, name, UNKNOWN, why))
            del kinds[name]
    baseline, current = (_timed(table, time) for table in (baseline, current))
    scored_sides = {"baseline": (baseline, score), "current": (current, score)} if score else {}
    naming = {"label": label, "task": columns.task, "positive": columns.positive}
    label_spec = checked("columns", LabelSpec, naming)
    if score and not label:  # Scores alone are numbers, or names of classes.
        texts = _kind(pa.field("", column_of(baseline, score, "score").type)) == "categorical"
        label_spec = LabelSpec(label=score, task="multiclass" if texts else "regression")
    predicted: dict[str, Array] = {}
    if label or score:
        sides = [column_of(table, label_spec.label, "label") for table in (baseline, current)]
        if sides[0].null_count:
            raise ConfigurationError(f"{label_spec.label}: expected a value in each row of the baseline, found nulls.")
        values = [pa.table({label_spec.label: side.drop_null()}) for side in sides]
        both = pa.concat_tables(values, promote_options="permissive")
        classes = named_classes(label_spec, both, scored_sides)
        predicted = {
            side: scores_of(label_spec, table, column, side, classes)[0]
            for side, (table, column) in scored_sides.items()
        }
        labels, current_labels = labels_of(label_spec, both, classes), np.full(current.num_rows, np.nan)
        current_labels[sides[1].is_valid().to_numpy()] = labels[baseline.num_rows :]
        baseline = baseline.append_column(_LABEL, pa.array(labels[: baseline.num_rows], pa.float64()))
        current = current.append_column(_LABEL, pa.array(current_labels, pa.float64(), from_pandas=True))
    spec = _settings(spec, bool(label), bool(score), bool(time))
    if spec.performance or spec.calibration:
        for side, table in (("baseline", baseline), ("current", current)):
            of_label = np.flatnonzero(table[_LABEL].is_valid())
            require_usable(predicted[side][of_label], of_label, TASKS[label_spec.task], f"{score} of {side}", side)
    labelled = current.filter(current[_LABEL].is_valid()) if label else current.slice(0, 0)
    details: dict[str, Any] = {"label": _LABEL, "task": label_spec.task, "group": columns.group}
    details |= {kind: [name for name in kinds if kinds[name] == kind] for kind in ("numeric", "categorical")}
    facts: dict[str, str | int] = {"rows of the baseline": baseline.num_rows, "newest rows": current.num_rows}
    facts |= {"of these with a known label": labelled.num_rows} if label else {}
    rows, reader = Rows(details, baseline, baseline, current, labelled, True, facts), TASKS[label_spec.task].read

    def of_reference(name: str) -> Gate:
        sampling, part = spec.performance or PerformanceSpec(), checks.part_of(baseline, _LABEL, details["group"])
        units, scored_part = checks.sampling_units(part, sampling), reader(predicted["baseline"], part.groups)
        value = checks.measured(metric_named(name), part, scored_part, sampling, units)
        return Gate(value.value, (value.high - value.low) / (2 * NORMAL), units.name, "in the baseline")

    scored = Scored(
        before=lambda: reader(predicted["baseline"], None),
        now=lambda: reader(predicted["current"], None),
        labelled=lambda groups: reader(predicted["current"][current[_LABEL].is_valid().to_numpy()], groups),
        gate=of_reference,
    )
    if baseline.num_rows < spec.min_rows:
        why = f"expected at least {spec.min_rows:,} rows in the baseline, found {baseline.num_rows:,}"
        return Comparison(
            spec.model_copy(update=dict.fromkeys(CHECKS)), rows, None, remarks=[Finding(DATA, "", UNKNOWN, why)]
        )
    return Comparison(spec, rows, scored if score else None, remarks=ids if spec.data_drift else [])


def _settings(spec: MonitoringSpec, label: bool, score: bool, time: bool) -> MonitoringSpec:
    """The settings without the checks for which columns are missing; without a time each row is one unit."""
    body = spec.model_dump(mode="json") | {"freshness": None}
    needs = {"label_drift": label, "prediction_drift": score, "performance": label and score}
    body |= {name: None for name, there in {**needs, "calibration": label and score}.items() if not there}
    units = (((body["data_drift"] or {}).get("significance"), "unit"), (body["performance"], "resample_by"))
    for settings, key in units:
        if settings and not time and settings[key] in ("day", "week"):
            settings[key] = ""
    return checked("spec", MonitoringSpec, body)


def _kind(field: pa.Field) -> str:
    """How a column is compared: `numeric` or `categorical`; empty for times, lists and the like."""
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "numeric"
    return "categorical" if pa.types.is_string(kind) or pa.types.is_boolean(kind) else ""


def _typed_like(table: pa.Table, other: pa.Table) -> pa.Table:
    """The table, where a column without any value has the type that it has in the other table."""
    for place, field in enumerate(table.schema):
        kind = other.schema.field(field.name).type if field.name in other.column_names else field.type
        if kind != field.type and pc.all(pc.is_null(table[place], nan_is_null=True)).as_py():
            table = table.set_column(place, field.name, pa.nulls(len(table), kind))
    return table


def _numbers_rows(values: pa.ChunkedArray) -> bool:
    """Whether no value occurs twice, and none is a fraction."""
    is_whole = not pa.types.is_floating(values.type) or pc.all(pc.equal(pc.round(values), values)).as_py()
    return bool(is_whole) and len(values.unique()) == len(values)


def _timed(table: pa.Table, time: str) -> pa.Table:
    """The table with its time in the column that the checks read; without one all rows have the same."""
    moments = column_of(table, time, "event_time") if time else pa.array(np.zeros(len(table), "datetime64[us]"))
    if not pa.types.is_timestamp(moments.type) or moments.null_count:
        times = f"{moments.type} with {moments.null_count:,} nulls"
        raise ConfigurationError(f"event_time: {time}: expected a time in each row, found {times}.")
    if time and len(table) and (latest := pc.max(moments).as_py()).year == _EPOCH:
        raise ConfigurationError(
            f"event_time: {time}: expected the times of the rows, found none after {latest.isoformat()}, as where a "
            "count of seconds is read as another unit."
        )
    kept = [name for name in table.column_names if name != TIME]
    return table.select(kept).append_column(TIME, moments.cast(pa.timestamp("us", "UTC")))
