"""Retrieves a training set from a plain Feast repository, and replays its values with our point-in-time join.

Feast's stores drop, merge or sort entity rows. Here each is asked for the distinct keys and times, so that every entity
row comes back once and in order, whichever offline store the repository has.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gatehouse.errors import ConfigurationError
from gatehouse.features.leakage.replay import Difference, difference
from gatehouse.features.point_in_time.entity_rows import TIME, EntityRows
from gatehouse.features.point_in_time.feast_store import quickly
from gatehouse.features.point_in_time.plain_repository import opened, requested, unpacked
from gatehouse.reports.page import Verdict, render
from gatehouse.runtime.plural import counted
from gatehouse.store.hidden_values import error_words

with quickly():
    from feast.errors import FeastError
    from feast.infra.passthrough_provider import PassthroughProvider
    from feast.on_demand_feature_view import OnDemandFeatureView

    from gatehouse.features.point_in_time import offline_store as ours

_ROW = "gatehouse_row"
_EMPTY = "no row has a value"
_REFUSALS = (FeastError, ValueError, TypeError, LookupError, AssertionError, FileNotFoundError)
_LATE = (
    "the created timestamp of {} is after the time of the row: it was loaded later, or not known then. Give "
    "filter_by_created_timestamp to leave such values out; or, if the event timestamp says since when they are known, "
    f"give the view the tag {ours.POINT_IN_TIME}: {ours.EVENT_TIME_ONLY}"
)


@dataclass(frozen=True)
class Retrieved:
    """A training set, and by view the number of rows that were replayed, what differs, or why it was not checked."""

    table: pa.Table
    features: list[str]
    keys: list[str]
    compared: dict[str, int]
    differences: list[str]
    unchecked: dict[str, str]
    warnings: list[str]

    def judged(self, accepted: Mapping[str, str], title: str) -> tuple[str, list[str], list[str], str]:
        """The verdict, its reasons, warnings, and the page; views in `accepted`, with a reason, may go unchecked.

        A view without any value is inconclusive all the same, as a reason is given before the values are there.
        """
        sentences = {name: f"{name}: not checked, as {why}" for name, why in self.unchecked.items()}
        if unknown := [name for name in accepted if name not in self.compared | sentences]:
            raise ConfigurationError(
                f"unchecked: expected views among {', '.join(self.compared | sentences)}, found {', '.join(unknown)}."
            )
        excused = {name for name, why in self.unchecked.items() if name in accepted and why != _EMPTY}
        refused = [sentence for name, sentence in sentences.items() if name not in excused]
        reasons, verdict = self.differences + refused, "inconclusive" if refused else "pass"
        verdict = "fail" if self.differences else verdict
        views = ", ".join(f"{name} ({counted(rows, 'row')})" for name, rows in self.compared.items())
        text = f"{counted(len(self.features), 'feature')} of {counted(self.table.num_rows, 'row')}. Replayed: {views}."
        notes = [*self.warnings, *(f"{sentences[name]}. {why}" for name, why in accepted.items() if name in excused)]
        word = "warn" if verdict == "inconclusive" else verdict
        shown = Verdict(word, text, self.differences, notes, refused, title=verdict)
        return verdict, reasons, notes, render("report.html", f"Leakage check of {title}", verdict=shown)


class ReplayingProvider(PassthroughProvider):
    """Feast's provider: it asks the repository's offline store once for each key and time, and replays the answer."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.keys: list[str] = []
        self.compared: dict[str, int] = {}
        self.differences: list[str] = []
        self.unchecked: dict[str, str] = {}

    def update_infra(self, *_: Any, **__: Any) -> None:
        """Do nothing: nothing is served from here."""

    def get_historical_features(
        self,
        config: Any,
        feature_views: Sequence[Any],
        feature_refs: list[str],
        entity_df: Any,
        registry: Any,
        project: str,
        full_feature_names: bool = False,
        **options: Any,
    ) -> ours.AsofRetrievalJob:
        """Retrieve as Feast does; the result has keys, time and request values in front of the features.

        Raises ConfigurationError if entity rows lack a column, or one has the name of a feature.
        """
        plan = [ours.joined_view(view, feature_refs, full_feature_names, "") for view in feature_views]
        on_demand = OnDemandFeatureView.get_requested_odfvs(feature_refs, project, registry)
        self.keys = [*dict.fromkeys(key for join in plan for key in join.keys.values())]
        place = [*self.keys, TIME]
        needed = [*dict.fromkeys([*place, *(name for view in on_demand for name in view.get_request_data_schema())])]
        names, columns = [name for join in plan for name in join.features.values()], [*entity_df.columns]
        if (missing := {*needed} - {*columns}) or {*names} & {*columns}:
            hidden = ", ".join(sorted({*names} & {*columns}))
            raise ConfigurationError(
                f"entity_rows: expected the columns {', '.join(needed)}, and none with the name of a feature; found "
                f"{', '.join(columns)}: {', '.join(sorted(missing)) or hidden} is {'missing' if missing else 'one'}."
            )
        first, numbers = ~entity_df.duplicated(place), entity_df.groupby(place, dropna=False).ngroup().to_numpy()
        asked, groups = entity_df.loc[first, place].reset_index(drop=True), np.argsort(numbers[first])[numbers]
        table, keys = pa.Table.from_pandas(entity_df[needed], preserve_index=False), pa.Table.from_pandas(asked)
        rows, more = asked.assign(**{_ROW: np.arange(len(asked))}), (registry, project, full_feature_names)
        for view, join in zip(feature_views, plan, strict=True):
            # Feast's Dask store drops a row for which one of several views has no value, so each view is asked alone.
            own = [ref for ref in feature_refs if ref.partition(":")[0] == view.projection.name_to_use()]
            answer = super().get_historical_features(config, [view], own, rows, *more, **options).to_arrow()
            order = np.full(len(asked), -1)
            order[answer[_ROW].to_numpy()] = np.arange(len(answer))
            stored = answer.take(pa.array(order, mask=order < 0))
            replay = partial(ours.AsofOfflineStore.get_historical_features, config, [view], own, asked, *more)
            self._replay(view, config.offline_store.type == ours.NAME or bool(options), replay, keys, stored)
            for name in join.features.values():
                table = table.append_column(name, stored[name].take(pa.array(groups)))

        def computed(part: pa.Table) -> ours.AsofRetrievalJob:
            return ours.AsofRetrievalJob(lambda _: iter([part]), full_feature_names, on_demand)

        if on_demand:  # Values of the earlier rows must not depend on later ones.
            moments = table[TIME].to_numpy()
            earlier = pa.array(moments <= np.sort(moments)[(len(moments) - 1) // 2])
            whole, half = computed(table).to_arrow().filter(earlier), computed(table.filter(earlier)).to_arrow()
            for name in [name for name in half.column_names if name not in table.column_names]:
                self._compare("on demand", half.select(place), name, whole[name], half[name])
            self.compared["on demand"] = half.num_rows
        return computed(table)

    def _replay(self, view: Any, by_created: bool, replay: Any, keys: pa.Table, stored: pa.Table) -> None:
        """Compare the values of a view with those that our own join finds for the same keys and times."""
        name, source = view.projection.name_to_use(), view.batch_source
        rule = {**(source.tags if source else {}), **(view.tags or {})}.get(ours.POINT_IN_TIME, "")
        default = ours.BITEMPORAL if by_created else ours.EVENT_TIME_ONLY
        view.tags = {**(view.tags or {}), ours.POINT_IN_TIME: rule or default}
        try:
            replayed = replay().to_arrow()
            latest = replayed if rule or by_created else replay(filter_by_created_timestamp=True).to_arrow()
        except ConfigurationError as error:
            self.unchecked[name] = str(error).rstrip(".")
            return
        late = 0
        for column in replayed.column_names[keys.num_columns :]:
            self._compare(name, keys, column, stored[column], replayed[column])
            later = _differing(name, keys, column, replayed[column], latest[column])
            late = max(late, later.rows if later else 0)
        self.compared[name] = keys.num_rows
        if late:
            self.unchecked[name] = _LATE.format(counted(late, "value"))

    def _compare(self, *arguments: Any) -> None:
        if gap := _differing(*arguments):
            keys = ", ".join(f"{name} {value}" for name, value in gap.first.items())
            self.differences.append(
                f"{gap.view}.{gap.feature}: {gap.rows:,} of {gap.of:,} rows differ from the newest value known at "
                f"their time, first {keys}: retrieved {gap.stored}, replayed {gap.replayed}"
            )


def _differing(
    view: str, keys: pa.Table, column: str, stored: pa.ChunkedArray, replayed: pa.ChunkedArray
) -> Difference | None:
    """The difference of values, whose types may be others: stores have other types for the same numbers."""
    if pa.types.is_nested(stored.type) or stored.type != replayed.type:
        stored, replayed = (_comparable(values) for values in (stored, replayed))
    return difference("training set", view, TIME, keys, column, stored, replayed)


def _comparable(values: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = values.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return pc.cast(values, pa.float64(), safe=False)
    if pa.types.is_timestamp(kind):
        return pc.cast(values, pa.timestamp("us", "UTC"), safe=False)
    plain = (dict(value) if pa.types.is_map(kind) and value is not None else value for value in values.to_pylist())
    return pa.chunked_array([[None if value is None else str(value) for value in plain]], pa.string())


def retrieve(
    place: str,
    rows: pa.Table,
    workspace: Path,
    service: str = "",
    features: Sequence[str] = (),
    time: str = TIME,
    offline_store: str = "",
    **options: Any,
) -> Retrieved:
    """Join features of the Feast repository at `place` to entity rows, whose columns and order stay.

    `workspace` is an empty folder, `offline_store` a type in place of the repository's own (ours is `gatehouse`), and
    `options` are those of Feast's `get_historical_features`. Times without a zone are UTC.

    Raises ConfigurationError if the repository or the request does not fit, or the offline store refuses it.
    """
    if time not in rows.column_names:
        raise ConfigurationError(
            f"entity_rows: expected the time of each row in the column {time}, found {', '.join(rows.column_names)}. "
            "Name the column with event_timestamp."
        )
    times = EntityRows.of_frame(pa.table({TIME: rows[time]}).to_pandas()).table()[TIME]
    if times.null_count or not rows.num_rows:
        count = f"{counted(rows.num_rows, 'row')}, {times.null_count:,} without"
        raise ConfigurationError(f"entity_rows: expected rows with a time in {time}, found {count}.")
    frame = rows.drop_columns([name for name in rows.column_names if name in (time, TIME)]).to_pandas()
    frame[TIME] = times.cast(pa.timestamp(times.type.unit, "UTC")).to_pandas()
    options = {name: value for name, value in options.items() if value}
    provider = f"{ReplayingProvider.__module__}.{ReplayingProvider.__name__}"
    offline_store = ours.NAME if offline_store == "gatehouse" else offline_store
    with opened(unpacked(place, workspace), workspace, provider, offline_store) as store:
        selection = requested(store, service, features)
        try:
            answer = store.get_historical_features(entity_df=frame, features=selection, **options).to_arrow()
        except _REFUSALS as error:
            raise ConfigurationError(f"Feast refuses the retrieval: {error_words(error)}.") from error
        checked: Any = store.provider
    if not isinstance(selection, list):  # Feast also gives what on-demand features are computed from.
        views: list[Any] = selection.feature_view_projections
        selection = [f"{view.name_to_use()}:{feature.name}" for view in views for feature in view.features]
    views, full = [ref.partition(":")[0] for ref in selection], options.get("full_feature_names")
    names = [ref.replace(":", "__") if full else ref.partition(":")[2] for ref in selection]
    for name in names:
        rows = rows.append_column(name, answer[name])
    empty = [name for name in names if pc.all(pc.is_null(answer[name], nan_is_null=True)).as_py()]
    valued = {view for view, name in zip(views, names, strict=True) if name not in empty}
    unchecked = checked.unchecked | {view: _EMPTY for view in views if view not in valued}
    warnings = [f"{_EMPTY} of {name}" for name in empty]
    return Retrieved(rows, names, checked.keys, checked.compared, checked.differences, unchecked, warnings)
