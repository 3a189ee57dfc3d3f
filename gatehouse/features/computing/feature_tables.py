"""Computes the feature tables of a snapshot: all rows of a new or changed view, else only what new data changes."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

import duckdb

from gatehouse.errors import ConfigurationError
from gatehouse.features.computing.compute import keep_view, stage_tables
from gatehouse.features.computing.spans import (
    ALL_TIME,
    BEGINNING,
    END,
    Span,
    changed_hours,
    choose_span,
    merged,
    newest_event,
    rows_needed,
    shifted,
    spans_to_compute,
)
from gatehouse.features.computing.versions import Earlier, files_from, next_table, redefined_table, rows_in
from gatehouse.features.database import connect, empty_schemas, open_tables, set_time
from gatehouse.features.definitions.changes import changes, definition_of, require_one_meaning
from gatehouse.features.definitions.repository import Repository, View, check_out, tables_of
from gatehouse.features.table_files import CORRECTED, settled_times, view_tables
from gatehouse.store.canonical import canonical_json
from gatehouse.store.database import quoted
from gatehouse.store.manifest import Column, FileEntry
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore

_PARENT, _SPAN = "parent", "features.__span"


@dataclass
class Sources:
    """The raw tables of a snapshot, by reference; their changes and newest events are computed once."""

    connection: duckdb.DuckDBPyConnection
    store: ArtifactStore
    repository: Repository
    datasets: Mapping[str, str]
    as_of: datetime
    _changed: dict[tuple[str, str], list[datetime] | None] = field(default_factory=dict)
    _newest: dict[str, datetime | None] = field(default_factory=dict)

    def changed(self, table: str, before: str) -> list[datetime] | None:
        """The hours in which a table differs from an earlier version of it; None where it has no time."""
        key = (table, before)
        source = self.repository.sources.get(table)
        if key not in self._changed:
            hours: list[datetime] | None = [] if before == self.datasets[table] else None
            if hours is None and source is not None and before:
                hours = changed_hours(self.connection, self.store, before, self.datasets[table], source)
            self._changed[key] = hours
        return self._changed[key]

    def settled(self, tables: Sequence[str]) -> datetime:
        """Time from which sources can still add rows: their newest event, less the time that rows may be early."""
        times = [self.as_of]
        for table in tables:
            source = self.repository.sources.get(table)
            if source is not None:
                if table not in self._newest:
                    self._newest[table] = newest_event(self.connection, self.store, self.datasets[table], source)
                newest = self._newest[table]
                times.append(shifted(newest, -source.lead) if newest else BEGINNING)
        return min(times)


@dataclass(frozen=True)
class Plan:
    """The computed part of a view.

    Attributes:
        spans: The event times to compute, in order; empty where nothing changed.
        settled: Time from which its sources can still add rows.
        earlier: The table that the spans are added to; None where the whole view is computed.
        corrected: Files of the earlier table with corrected versions, where the whole view is computed.
    """

    view: View
    spans: tuple[Span, ...]
    settled: datetime
    parent: str = ""
    earlier: Earlier | None = None
    corrected: tuple[Path, ...] = ()


def compute_tables(
    store: ArtifactStore,
    repository: Repository,
    datasets: Mapping[str, str],
    as_of: datetime,
    parent: str,
    workspace: Path,
) -> dict[str, tuple[Reference, datetime]]:
    """Compute and publish the table of every view.

    `datasets` has the references of the raw tables, which know everything up to `as_of`. `parent` is the reference of
    earlier feature tables; empty for none. Raises ConfigurationError naming the file whose SQL does not run, or a table
    that the snapshot lacks.

    Returns:
        By view its table, and the time from which its rows are provisional, as its sources can still add rows.
    """
    for table in tables_of(repository, [view.query for view in repository.views.values()]):
        if table not in datasets:
            raise ConfigurationError(
                f"The feature views read raw.{table}, which is not in the snapshot: expected one of "
                f"{', '.join(sorted(datasets))}, in the same upper and lower case."
            )
    with connect() as connection:
        sources = Sources(connection, store, repository, datasets, as_of)
        plans = {name: _plan(sources, view, parent) for name, view in repository.views.items()}
        # A table is written while the next one is computed, because writing alone does not keep all cores busy.
        with ThreadPoolExecutor(1, "feature-tables") as writer:
            written = {
                name: writer.submit(_publish, sources, plans[name], workspace) for name in _computed(sources, plans)
            }
        return {name: (written[name].result(), plan.settled) for name, plan in plans.items()}


def changed_views(
    store: ArtifactStore, repository: Repository, definitions: str, parent: str, folder: Path
) -> dict[str, list[str]]:
    """What changed since the definitions of earlier feature tables, by view. Raises as `require_one_meaning`."""
    earlier = store.manifest(parent).derived_from["definitions"]
    if earlier == definitions:
        return {}
    before = check_out(store, earlier, folder)
    require_one_meaning(before, repository, f"The feature tables {parent}", repository.views)
    return changes(before, repository)


def _plan(sources: Sources, view: View, parent: str) -> Plan:
    store, repository = sources.store, sources.repository
    tables = tables_of(repository, [view.query])
    whole = Plan(view, (ALL_TIME,), sources.settled(tables))
    table = view_tables(store, parent).get(view.name) if parent else None
    as_of = datetime.fromisoformat(store.manifest(parent).details["as_of"]) if parent else sources.as_of
    if table is None or as_of > sources.as_of:
        return whole
    manifest, definition = store.manifest(table), definition_of(repository, view)
    files = {entry.path: entry for entry in manifest.files}

    def verified(entries: Iterable[FileEntry]) -> dict[str, Path]:
        store.require_readable(table)
        return {entry.path: store.verified_path(manifest.reference, entry) for entry in entries}

    if canonical_json(manifest.configuration) != canonical_json(definition):
        if canonical_json(manifest.configuration["keys"]) != canonical_json(definition["keys"]):
            return whole
        corrected = verified(entry for name, entry in files.items() if name.startswith(CORRECTED))
        return replace(whole, parent=table, corrected=tuple(corrected.values()))
    settled = settled_times(store, parent)[view.name]
    changed = {name: sources.changed(name, manifest.derived_from.get(name, "")) for name in tables}
    spans = spans_to_compute(changed, repository.sources, view.spec.window)
    if as_of < sources.as_of and not view.spec.static:
        spans = merged([*spans, Span(min(settled, as_of), END)])
    if view.spec.static and spans:  # The time of its rows is not that of its sources.
        spans = [ALL_TIME]
    paths = verified(files_from(files, spans[0].start) if spans else [])
    return Plan(view, tuple(spans), whole.settled, table, Earlier(files, paths, settled))


def _computed(sources: Sources, plans: Mapping[str, Plan]) -> Iterator[str]:
    """Compute the rows of views in their spans, by view; views with the same span share staging tables.

    A view is yielded when all its rows are in the table `_rows`.
    """
    connection, repository = sources.connection, sources.repository
    yield from (name for name, plan in plans.items() if not plan.spans)
    for span in sorted({span for plan in plans.values() for span in plan.spans}):
        views = [plan.view for plan in plans.values() if span in plan.spans]
        windows = [view.spec.window for view in views if not view.spec.static]
        window = None if None in windows else max((length for length in windows if length is not None), default=None)
        queries = [view.query for view in views]
        empty_schemas(connection)
        for table in tables_of(repository, queries):
            open_tables(connection, {table: sources.store.paths(sources.datasets[table])}, "source")
            source = repository.sources.get(table)
            needed = rows_needed(span, source, window) if source else "true"
            query = f"SELECT * FROM source.{quoted(table)} WHERE {needed}"
            connection.execute(f"CREATE VIEW raw.{quoted(table)} AS {query}")
        set_time(connection, "as_of", sources.as_of)
        choose_span(connection, span)
        stage_tables(connection, repository, queries)
        for view in views:
            computed, spans = _rows(view), plans[view.name].spans
            if span == spans[0]:
                keep_view(connection, repository, view, computed)
            else:
                keep_view(connection, repository, view, _SPAN)
                connection.execute(f"INSERT INTO {computed} FROM {_SPAN}; DROP TABLE {_SPAN}")
            if span == spans[-1]:
                yield view.name


def _rows(view: View) -> str:
    """Name of the table with a view's rows that are not written to files yet."""
    return f"features.{quoted(view.name)}"


def _publish(sources: Sources, plan: Plan, workspace: Path) -> Reference:
    view, folder, kept = plan.view, workspace / plan.view.name, _rows(plan.view)
    store, repository = sources.store, sources.repository
    with sources.connection.cursor() as connection:
        if plan.earlier is None:
            files = redefined_table(connection, view, plan.corrected, kept, folder)
        elif plan.spans:
            files = next_table(connection, view, plan.earlier, plan.spans, kept, sources.as_of, folder)
        else:
            files = {**plan.earlier.files}
        if plan.spans:
            schema = connection.sql(f"FROM {kept} LIMIT 0").to_arrow_table().schema
            columns: Sequence[Column] = [Column(field.name, str(field.type), field.nullable) for field in schema]
        else:
            columns = store.manifest(plan.parent).columns
        connection.execute(f"DROP TABLE IF EXISTS {kept}")
    derived: dict[str, Reference | str] = {
        table: sources.datasets[table] for table in tables_of(repository, [view.query])
    }
    if corrected := [file for name, file in files.items() if name.startswith(CORRECTED)]:
        # The table that holds corrected rows which the sources no longer hold.
        unchanged = all(isinstance(file, FileEntry) for file in corrected)
        derived[_PARENT] = store.manifest(plan.parent).derived_from[_PARENT] if unchanged else plan.parent
    rows = {name: rows_in(file) for name, file in files.items()}
    return store.publish(
        "features",
        view.name,
        files,
        columns=columns,
        rows=sum(rows.values()),
        rows_per_file=rows,
        derived_from=derived,
        configuration=definition_of(repository, view),
        details={"version": view.spec.version},
    )
