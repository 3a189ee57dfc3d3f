"""Computes the feature tables of a snapshot: all rows of a new or changed view, else only what new data changes.

The event times to compute are divided into spans by the rows of the snapshot alone. Each span is a piece, and so is
what puts the rows of several spans, or of an earlier table, together. Nothing here reads a row.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from gatehouse.errors import ConfigurationError
from gatehouse.features.computing.event_hours import hours_of
from gatehouse.features.computing.spans import (
    ALL_TIME,
    BEGINNING,
    END,
    FileHours,
    Span,
    changed_hours,
    divided,
    merged,
    needed_files,
    newest_event,
    shifted,
    spans_to_compute,
)
from gatehouse.features.computing.table_pieces import (
    AssembleRequest,
    Assembly,
    RawFiles,
    SpanRequest,
    WindowRequest,
    assemble_tables,
    check_windows,
    compute_span,
    longest_window,
)
from gatehouse.features.definitions.changes import changes, definition_of, require_one_meaning
from gatehouse.features.definitions.repository import Repository, View, check_out, tables_of
from gatehouse.features.table_files import CORRECTED, settled_times, view_tables
from gatehouse.pieces.piece import ROWS, batches, run_pieces
from gatehouse.store.canonical import canonical_json
from gatehouse.store.manifest import Column, FileEntry
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore

_PARENT, _NONE = "parent", "known-none.parquet"
_SAMPLE, _MORE = 16, 4
"""The window of a view is checked on a part of a piece this much smaller, with the rows of a piece this much smaller
read as well."""


@dataclass(frozen=True)
class Sources:
    """The raw tables of a snapshot, by reference, and the hours of their events, and of earlier versions of them."""

    store: ArtifactStore
    repository: Repository
    definitions: str
    datasets: Mapping[str, str]
    as_of: datetime
    hours: Mapping[str, Sequence[FileHours]]

    def changed(self, table: str, before: str) -> list[datetime] | None:
        """The hours in which a table differs from an earlier version of it; None where it has no time."""
        if before == self.datasets[table]:
            return []
        if table not in self.repository.sources or not before:
            return None
        return changed_hours(self.hours[before], self.hours[self.datasets[table]])

    def settled(self, tables: Sequence[str]) -> datetime:
        """Time from which sources can still add rows: their newest event, less the time that rows may be early."""
        times = [self.as_of]
        for table in tables:
            if (source := self.repository.sources.get(table)) is not None:
                newest = newest_event(self.hours[self.datasets[table]])
                times.append(shifted(newest, -source.lead) if newest else BEGINNING)
        return min(times)

    def files(self, views: Sequence[View], span: Span) -> dict[str, RawFiles]:
        """The raw files with the rows that views need in a span; of a table without such rows, its first file."""
        window, files = longest_window(views), {}
        for table in tables_of(self.repository, [view.query for view in views]):
            source, dataset = self.repository.sources.get(table), self.datasets[table]
            if source:
                hours = self.hours[dataset]
                paths = [file.path for file in needed_files(hours, span, source, window) or hours[:1]]
            else:
                paths = [entry.path for entry in self.store.manifest(dataset).files]
            files[table] = RawFiles(dataset=dataset, paths=tuple(paths))
        return files

    def request(self, views: Sequence[View], span: Span) -> SpanRequest:
        """The piece with the rows of views in a span."""
        return SpanRequest(
            definitions=self.definitions,
            as_of=self.as_of.isoformat(),
            views=tuple(view.name for view in views),
            start=span.start,
            end=span.end,
            tables=self.files(views, span),
        )


@dataclass(frozen=True)
class Plan:
    """The computed part of a view.

    Attributes:
        spans: The event times to compute, in order; empty where nothing changed.
        settled: Time from which its sources can still add rows.
        parent: The earlier table; empty for none, or one that nothing is taken from.
        earlier: Until when rows of the earlier table are settled, to which the spans are added; None where the whole
            view is computed.
        corrected: Whether the earlier table has corrected versions, where the whole view is computed.
    """

    view: View
    spans: tuple[Span, ...]
    settled: datetime
    parent: str = ""
    earlier: datetime | None = None
    corrected: bool = False


def compute_tables(
    store: ArtifactStore,
    repository: Repository,
    definitions: str,
    datasets: Mapping[str, str],
    as_of: datetime,
    parent: str,
) -> dict[str, tuple[Reference, datetime]]:
    """Compute and publish the table of every view.

    `datasets` has the references of the raw tables, which know everything up to `as_of`; `repository` is what is in
    `definitions`. `parent` is the reference of earlier feature tables; empty for none. Raises ConfigurationError naming
    the file whose SQL does not run, a table that the snapshot lacks, or a view that needs more than its window.

    Returns:
        By view its table, and the time from which its rows are provisional, as its sources can still add rows.
    """
    tables = tables_of(repository, [view.query for view in repository.views.values()])
    for table in tables:
        if table not in datasets:
            raise ConfigurationError(
                f"The feature views read raw.{table}, which is not in the snapshot: expected one of "
                f"{', '.join(sorted(datasets))}, in the same upper and lower case."
            )
    timed = [(datasets[table], table) for table in tables if table in repository.sources]
    for table in view_tables(store, parent).values() if parent else ():
        before = store.manifest(table).derived_from
        timed += [(before[name], name) for name in tables if name in repository.sources and name in before]
    hours = hours_of(store, ((dataset, repository.sources[table].event_time) for dataset, table in timed))
    sources = Sources(store, repository, definitions, datasets, as_of, hours)
    plans = {name: _plan(sources, view, parent) for name, view in repository.views.items()}
    files, columns = _computed(sources, [plan for plan in plans.values() if plan.spans])
    return {name: (_publish(sources, plan, files, columns), plan.settled) for name, plan in plans.items()}


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
    if canonical_json(manifest.configuration) != canonical_json(definition):
        if canonical_json(manifest.configuration["keys"]) != canonical_json(definition["keys"]):
            return whole
        corrected = any(entry.path.startswith(CORRECTED) for entry in manifest.files)
        return Plan(view, whole.spans, whole.settled, table, corrected=corrected)
    settled = settled_times(store, parent)[view.name]
    changed = {name: sources.changed(name, manifest.derived_from.get(name, "")) for name in tables}
    spans = spans_to_compute(changed, repository.sources, view.spec.window)
    if as_of < sources.as_of and not view.spec.static:
        spans = merged([*spans, Span(min(settled, as_of), END)])
    if view.spec.static and spans:  # The time of its rows is not that of its sources.
        spans = [ALL_TIME]
    return Plan(view, tuple(spans), whole.settled, table, settled)


def _computed(
    sources: Sources, plans: Sequence[Plan]
) -> tuple[dict[str, dict[str, FileEntry]], dict[str, list[Column]]]:
    """Compute the rows of views in their spans, and put them together: the files and the columns of each table."""
    store = sources.store
    calls = [*_spans(sources, plans)]
    parts: dict[str, list[str]] = {plan.view.name: [] for plan in plans}
    columns: dict[str, list[Column]] = {}
    for (_, request), result in zip(calls, run_pieces(store, calls), strict=True):
        if isinstance(request, SpanRequest) and not isinstance(request, WindowRequest):
            for name in request.views:
                parts[name].append(result.rows)
                columns[name] = [Column(**column) for column in store.manifest(result.rows).details["columns"][name]]
    files = {plan.view.name: dict[str, FileEntry]() for plan in plans}
    tables, sizes = list[Assembly](), list[int]()
    for plan in plans:
        name = plan.view.name
        entries = [_files(store, part, name) for part in parts[name]]
        merging = Counter(file for part in entries for file in part)
        rows = Counter[str]()
        for part in entries:
            rows.update({file: entry.rows or 0 for file, entry in part.items()})
            files[name] |= part
        if rows.total():  # A part without rows has a file to say so.
            files[name].pop(_NONE, None)
        if plan.earlier is not None or plan.corrected:
            spans = tuple((span.start, span.end) for span in plan.spans)
            whole = Assembly(view=name, files=tuple(sorted(merging)), parts=tuple(parts[name]), spans=spans)
            tables.append(whole.model_copy(update={"earlier": plan.parent, "settled": plan.earlier}))
            sizes.append(rows.total())
            files[name] = {}
        else:
            several = [file for file in files[name] if merging[file] > 1 and file != _NONE]
            for weeks in batches(several, [rows[file] for file in several], ROWS):
                tables.append(Assembly(view=name, files=tuple(weeks), parts=tuple(parts[name])))
                sizes.append(sum(rows[file] for file in weeks))
    assemblies = [
        AssembleRequest(definitions=sources.definitions, as_of=sources.as_of.isoformat(), tables=tuple(batch))
        for batch in batches(tables, sizes, ROWS)
    ]
    made = run_pieces(store, [(assemble_tables, assembly) for assembly in assemblies])
    for assembly, result in zip(assemblies, made, strict=True):
        for table in assembly.tables:
            files[table.view] |= _files(store, result.rows, table.view)
    return files, columns


def _spans(sources: Sources, plans: Sequence[Plan]) -> Iterator[tuple[Any, SpanRequest]]:
    """The pieces of the views' spans: views with the same span share staging tables.

    Where there are rows for several pieces, views that declare a window are divided by time, each other view is a
    piece, and the windows are checked on a sample in the middle of the first span of a view that is divided.
    """
    checked = set[str]()
    for span in sorted({span for plan in plans for span in plan.spans}):
        views = [plan.view for plan in plans if span in plan.spans]
        timed = [view for view in views if view.spec.window is not None and not view.spec.static]
        names = tables_of(sources.repository, [view.query for view in timed])
        tables = [sources.hours[sources.datasets[name]] for name in names if name in sources.repository.sources]
        parts = divided(span, tables, ROWS)
        if len(parts) == 1:
            yield compute_span, sources.request(views, span)
            continue
        if not checked.issuperset(view.name for view in timed):
            checked |= {view.name for view in timed}
            small = divided(span, tables, ROWS // _SAMPLE)
            middle = small[len(small) // 2]
            more = _SAMPLE // _MORE
            first, last = max(len(small) // 2 - more, 0), min(len(small) // 2 + more, len(small) - 1)
            wider = Span(small[first].start, small[last].end)
            body = sources.request(timed, wider).model_dump() | {"start": middle.start, "end": middle.end}
            yield check_windows, WindowRequest(**body, wider_start=wider.start, wider_end=wider.end)
        yield from ((compute_span, sources.request([view], span)) for view in views if view not in timed)
        yield from ((compute_span, sources.request(timed, part)) for part in parts)


def _files(store: ArtifactStore, rows: str, view: str) -> dict[str, FileEntry]:
    """The files of one view in the artifact of a piece, by their names in a table."""
    folder = f"{view}/"
    entries = store.manifest(rows).files
    return {entry.path.removeprefix(folder): entry for entry in entries if entry.path.startswith(folder)}


def _publish(
    sources: Sources,
    plan: Plan,
    computed: Mapping[str, Mapping[str, FileEntry]],
    columns: Mapping[str, Sequence[Column]],
) -> Reference:
    view, store, repository = plan.view, sources.store, sources.repository
    manifest = store.manifest(plan.parent) if plan.parent else None
    files = {entry.path: entry for entry in manifest.files} if manifest and not plan.spans else computed[view.name]
    derived: dict[str, Reference | str] = {
        table: sources.datasets[table] for table in tables_of(repository, [view.query])
    }
    if manifest and (corrected := {file for file in files if file.startswith(CORRECTED)}):
        # The table that holds corrected rows which the sources no longer hold.
        unchanged = all((kept := manifest.entry(name)) and kept.sha256 == files[name].sha256 for name in corrected)
        derived[_PARENT] = manifest.derived_from[_PARENT] if unchanged else plan.parent
    return store.publish(
        "features",
        view.name,
        files,
        columns=columns[view.name] if plan.spans else manifest.columns if manifest else (),
        rows=sum(entry.rows or 0 for entry in files.values()),
        derived_from=derived,
        configuration=definition_of(repository, view),
        details={"version": view.spec.version},
    )
