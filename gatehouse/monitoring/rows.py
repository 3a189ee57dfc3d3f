"""The rows to compare: the champion's training rows, the reference, and the newest rows with their labels."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from gatehouse.errors import ConfigurationError, GatehouseError
from gatehouse.metrics.tasks import declared_task
from gatehouse.monitoring.spec import MonitoringSpec
from gatehouse.store.store import ArtifactStore
from gatehouse.training.learned import learned_parts

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from gatehouse.monitoring.bins import Numbers
    from gatehouse.monitoring.columns import Units
    from gatehouse.store.manifest import Manifest

TIME = "decision_time"
_FOUND = "__found"
ASIDE = "rows set aside, as they have no label"
LEFT_OUT = "logged rows left out, as they lack features and a label"
"""Names of facts that count rows which are not compared."""


class MissingColumnError(GatehouseError):
    """The newest rows lack a column that the model was trained on."""

    permanent = True


@dataclass(frozen=True)
class Asked:
    """What to compare.

    Attributes:
        reference: Training set of the champion.
        split: The champion's split.
        current: Training set with the newest rows.
        predictions: A log of predictions; empty if the champion scores the newest rows here.
        model: The champion; empty for none.
        since, until: Only rows decided at or after `since` and before `until`, ISO 8601; empty for no bound.
        unlabelled: Decisions whose label is not known yet, with their features; empty for none.
    """

    reference: str
    split: str
    current: str
    predictions: str = ""
    model: str = ""
    since: str = ""
    until: str = ""
    unlabelled: str = ""


@dataclass(frozen=True)
class Watched:
    """The rows to compare.

    Attributes:
        manifest: Manifest of the champion's training set.
        trained: The champion's training rows.
        reference: The rows that the newest rows are compared with; empty if there are none.
        current: The newest rows; the label is null where it is not known yet.
        labelled: The rows of `current` with a known label.
        after: All labelled rows that were decided after the champion's last training row, up to the end of the newest
            rows.
        logged: Whether `current` comes from a log, and holds the predictions.
        facts: Counts for the report, by name.
    """

    manifest: "Manifest"
    trained: "pa.Table"
    reference: "pa.Table"
    current: "pa.Table"
    labelled: "pa.Table"
    after: "pa.Table"
    logged: bool
    facts: Mapping[str, str | int]

    @property
    def features(self) -> dict[str, str]:
        """The kind of each feature, by name."""
        details = self.manifest.details
        return dict.fromkeys(details["numeric"], "numeric") | dict.fromkeys(details["categorical"], "categorical")

    @property
    def label(self) -> str:
        """Name of the label's column."""
        return str(self.manifest.details["label"])

    @property
    def task(self) -> str:
        """Name of the task."""
        return declared_task(self.manifest.details).name

    def blocks(self, min_rows: int) -> "Numbers":
        """Number of each reference row's block of the newest rows' length; -1 for none, shape (rows,)."""
        from gatehouse.monitoring.bins import blocks_of

        now = moments(self.current)
        return blocks_of(moments(self.reference), now.max() - now.min(), min_rows)

    def units(self, unit: str) -> "Units":
        """The unit of each reference row and each newest row: rows of one unit depend on each other."""
        from gatehouse.monitoring.columns import Units

        return Units(units_of(self.reference, unit), units_of(self.current, unit))


def read_rows(asked: Asked, spec: MonitoringSpec, store: ArtifactStore) -> Watched:
    """Read the rows to compare.

    Raises:
        MissingColumnError: if the newest rows lack a feature that the model was trained on.
        ConfigurationError: if a bound is not a time with a zone, or the classes of labels have other numbers.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    manifest, newest = store.manifest(asked.reference), store.manifest(asked.current)
    details, keys = manifest.details, [*newest.details.get("entity_keys", ()), TIME]
    needed = [*details["numeric"], *details["categorical"], details["label"], TIME]
    _require(asked, manifest, newest, needed)
    extra = [*keys, details.get("group") or TIME, *_units(spec)]
    wanted = [*dict.fromkeys([*needed, *(name for name in extra if name in {each.name for each in newest.columns})])]
    trained = pq.ParquetDataset(store.paths(asked.reference)).read(
        columns=[name for name in wanted if name in {each.name for each in manifest.columns}]
    )
    learned = learned_parts(store.manifest(asked.model).configuration if asked.model else {})
    parts = [pq.read_table(store.path(asked.split, f"{part}.parquet")) for part in learned]
    trained = trained.take(pa.concat_tables(parts)["row"])
    every = pq.ParquetDataset(store.paths(asked.current)).read(columns=wanted)
    last = pc.max(trained[TIME]).cast(every[TIME].type)
    after = _between(every, "", asked.until, last)
    facts: dict[str, str | int] = {"train rows": trained.num_rows}
    current = _with_unlabelled(every, asked.unlabelled, wanted, store)
    if not asked.predictions:
        facts[ASIDE] = _set_aside(newest) - (current.num_rows - every.num_rows)
    else:
        current = _logged(asked, store, current, keys, needed, facts)
    current = _between(current, asked.since, asked.until, last)
    labelled = current.filter(pc.is_valid(current[details["label"]]))
    facts |= {"newest rows": current.num_rows, "of these with a known label": labelled.num_rows}
    if asked.predictions or asked.unlabelled:
        facts["of these whose label is not known yet"] = current.num_rows - labelled.num_rows
    if current.num_rows:
        first, latest = pc.min(current[TIME]).as_py(), pc.max(current[TIME]).as_py()
        facts |= {"decided from": first.isoformat(), "to": latest.isoformat()}
    facts["labelled rows after the last train row"] = after.num_rows
    reference = _reference(spec, trained, every, current)
    facts["rows of the reference"] = reference.num_rows
    return Watched(manifest, trained, reference, current, labelled, after, bool(asked.predictions), facts)


def moments(table: "pa.Table") -> "npt.NDArray[np.datetime64]":
    """When each row was decided, in microseconds, shape (rows,)."""
    found: npt.NDArray[np.datetime64] = table[TIME].to_numpy().astype("datetime64[us]")
    return found


def units_of(table: "pa.Table", unit: str) -> "Numbers":
    """Number of each row's unit, from 0, shape (rows,).

    Args:
        table: The rows.
        unit: `day`, `week` (starting on Thursday), a column, or empty for single rows.

    Raises:
        ConfigurationError: if there is no such column.
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


def _units(spec: MonitoringSpec) -> list[str]:
    """The units of all checks: columns, or `day` and `week`."""
    significance = spec.data_drift.significance if spec.data_drift else None
    resampled = spec.performance.resample_by if spec.performance else ""
    return [significance.unit if significance else "", resampled]


def _require(asked: Asked, manifest: "Manifest", newest: "Manifest", needed: list[str]) -> None:
    held = {column.name for column in newest.columns}
    if missing := [name for name in needed if name not in held]:
        raise MissingColumnError(
            f"{asked.current} has no column {', '.join(missing)}, which the model was trained on in "
            f"{asked.reference}. Retrieve the current rows through the feature service of the model."
        )
    classes, now = (list(each.details.get("classes", ())) for each in (manifest, newest))
    if classes != now[: len(classes)]:
        raise ConfigurationError(
            f"{asked.current} has the classes {', '.join(now) or 'without names'}, expected the list to begin with "
            f"those of {asked.reference}: {', '.join(classes)}. Add new classes at the end of the LabelView's classes."
        )


def _with_unlabelled(every: "pa.Table", unlabelled: str, wanted: list[str], store: ArtifactStore) -> "pa.Table":
    """The labelled rows, then those of `unlabelled`, with a null label."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not unlabelled:
        return every
    held = {column.name for column in store.manifest(unlabelled).columns}
    rows = pq.ParquetDataset(store.paths(unlabelled)).read(columns=[name for name in wanted if name in held])
    return pa.concat_tables([every, rows], promote_options="permissive")


def _set_aside(newest: "Manifest") -> int:
    return sum(int(count) for count in newest.details.get("set_aside", {}).values())


def _logged(
    asked: Asked,
    store: ArtifactStore,
    every: "pa.Table",
    keys: list[str],
    needed: list[str],
    facts: dict[str, str | int],
) -> "pa.Table":
    """The rows of the log, with known labels; features that were not logged are taken from the labelled rows."""
    import pyarrow as pa

    from gatehouse.monitoring.logs import read_log, with_labels

    newest = store.manifest(asked.current).details
    log = read_log(store, asked.predictions, asked.model, declared_task(newest).name, keys)
    facts |= {"logged rows": log.table.num_rows, "of these, left out as repeated": log.repeated}
    if log.others:
        facts["logged rows of other models"] = log.others
    lacking = [name for name in every.column_names if name not in log.table.column_names]
    known = every.select([*keys, *lacking]).append_column(_FOUND, pa.nulls(every.num_rows, pa.bool_()).fill_null(True))
    joined = with_labels(log.table, known, keys)
    found = joined.filter(joined[_FOUND].is_valid()).drop_columns(_FOUND)
    unlogged = [name for name in lacking if name in needed and name != newest["label"]]
    if unlogged:
        facts["features that were not logged"] = ", ".join(unlogged)
        facts[LEFT_OUT] = joined.num_rows - found.num_rows
        return found
    return joined.drop_columns(_FOUND)


def _between(table: "pa.Table", since: str, until: str, last: "pa.Scalar") -> "pa.Table":
    """Rows decided in [since, until); after the last train row where `since` is empty."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = table[TIME].type
    if since:
        table = table.filter(pc.greater_equal(table[TIME], pa.scalar(moment("since", since), kind)))
    else:
        table = table.filter(pc.greater(table[TIME], last.cast(kind)))
    return table.filter(pc.less(table[TIME], pa.scalar(moment("until", until), kind))) if until else table


def moment(name: str, text: str) -> datetime:
    """A time with its zone. Raises ConfigurationError."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = datetime.min
    if found.tzinfo is None:
        raise ConfigurationError(f"{name}: expected a time with its zone, e.g. 2013-11-01T00:00:00Z, found {text!r}.")
    return found


def _reference(spec: MonitoringSpec, trained: "pa.Table", every: "pa.Table", current: "pa.Table") -> "pa.Table":
    """The rows that the newest rows are compared with."""
    import numpy as np

    if spec.reference.window == "training" or not current.num_rows:
        return trained
    now, then = moments(current), moments(every)
    start, end = now.min(), now.max()
    if spec.reference.window == "trailing":
        inside = (then < start) & (then >= start - np.timedelta64(spec.reference.days, "D"))
    else:
        low, high = (each - np.timedelta64(365, "D") for each in (start, end))
        inside = (then >= low) & (then <= high)
    return every.filter(inside)
