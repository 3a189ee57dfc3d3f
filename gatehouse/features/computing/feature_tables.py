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

from gatehouse.features.computing.sources import Sources
from gatehouse.features.computing.spans import ALL_TIME, END, Span, merged, spans_to_compute
from gatehouse.features.computing.table_pieces import (
    AssembleRequest,
    Assembly,
    SpanRequest,
    SpanResult,
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
from gatehouse.store.manifest import Column, FileEntry, Manifest
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore

_PARENT, _NONE = "parent", "known-none.parquet"


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
    queries = [view.query for view in repository.views.values()]
    earlier = [store.manifest(table).derived_from for table in view_tables(store, parent).values()] if parent else []
    sources = Sources.of(store, repository, datasets, as_of, queries).counted(earlier)
    plans = {name: _plan(sources, view, parent) for name, view in repository.views.items()}
    files, columns = _computed(sources, definitions, [plan for plan in plans.values() if plan.spans])
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
    sources: Sources, definitions: str, plans: Sequence[Plan]
) -> tuple[dict[str, dict[str, FileEntry]], dict[str, list[Column]]]:
    """Compute the rows of views in their spans, and put them together: the files and the columns of each table."""
    store = sources.store
    calls = [*_spans(sources, definitions, plans)]
    results = zip(calls, run_pieces(store, calls), strict=True)
    computed = [result.rows for _, result in results if isinstance(result, SpanResult)]
    parts: dict[str, list[tuple[str, dict[str, FileEntry]]]] = {plan.view.name: [] for plan in plans}
    columns: dict[str, list[Column]] = {}
    for rows, manifest in zip(computed, store.manifests(computed), strict=True):
        for name, of_view in manifest.details["columns"].items():
            parts[name].append((rows, _files(manifest, name)))
            columns[name] = [Column(**column) for column in of_view]
    files = {plan.view.name: dict[str, FileEntry]() for plan in plans}
    tables, sizes = list[Assembly](), list[int]()
    for plan in plans:
        name = plan.view.name
        parts_with, counts = dict[str, list[str]](), Counter[str]()
        for part, entries in parts[name]:
            for file, entry in entries.items():
                parts_with.setdefault(file, []).append(part)
                counts[file] += entry.rows or 0
            files[name] |= entries
        if counts.total():  # A part without rows has a file to say so.
            files[name].pop(_NONE, None)
        if plan.earlier is not None or plan.corrected:
            spans = tuple((span.start, span.end) for span in plan.spans)
            every = tuple(part for part, _ in parts[name])
            whole = Assembly(view=name, files=tuple(sorted(parts_with)), parts=every, spans=spans)
            tables.append(whole.model_copy(update={"earlier": plan.parent, "settled": plan.earlier}))
            sizes.append(counts.total())
            files[name] = {}
        else:
            several = [file for file in files[name] if len(parts_with[file]) > 1 and file != _NONE]
            for weeks in batches(several, [counts[file] for file in several], ROWS):
                needed = dict.fromkeys(part for week in weeks for part in parts_with[week])
                tables.append(Assembly(view=name, files=tuple(weeks), parts=tuple(needed)))
                sizes.append(sum(counts[file] for file in weeks))
    assemblies = [
        AssembleRequest(definitions=definitions, as_of=sources.as_of.isoformat(), tables=tuple(batch))
        for batch in batches(tables, sizes, ROWS)
    ]
    made = [result.rows for result in run_pieces(store, [(assemble_tables, assembly) for assembly in assemblies])]
    for assembly, manifest in zip(assemblies, store.manifests(made), strict=True):
        for table in assembly.tables:
            files[table.view] |= _files(manifest, table.view)
    return files, columns


def _spans(sources: Sources, definitions: str, plans: Sequence[Plan]) -> Iterator[tuple[Any, SpanRequest]]:
    """The pieces of the views' spans: views with the same span share staging tables.

    Where there are rows for several pieces, views that declare a window are divided by time, each other view is a
    piece, and the windows are checked on a sample in the middle of the first span of a view that is divided.
    """

    def request(views: Sequence[View], span: Span, reading: Span | None = None) -> SpanRequest:
        queries, window = [view.query for view in views], longest_window(views)
        return SpanRequest(
            definitions=definitions,
            as_of=sources.as_of.isoformat(),
            views=tuple(view.name for view in views),
            start=span.start,
            end=span.end,
            tables=sources.files(queries, window, reading or span),
        )

    checked = set[str]()
    for span in sorted({span for plan in plans for span in plan.spans}):
        views = [plan.view for plan in plans if span in plan.spans]
        timed = [view for view in views if view.spec.window is not None and not view.spec.static]
        queries = [view.query for view in timed]
        parts = sources.divided(queries, span)
        if len(parts) == 1:
            yield compute_span, request(views, span)
            continue
        if not checked.issuperset(view.name for view in timed):
            checked |= {view.name for view in timed}
            middle, wider = sources.sample(queries, span)
            body = request(timed, middle, wider).model_dump()
            yield check_windows, WindowRequest(**body, wider_start=wider.start, wider_end=wider.end)
        yield from ((compute_span, request([view], span)) for view in views if view not in timed)
        yield from ((compute_span, request(timed, part)) for part in parts)


def _files(rows: Manifest, view: str) -> dict[str, FileEntry]:
    """The files of one view in the artifact of a piece, by their names in a table."""
    folder = f"{view}/"
    return {entry.path.removeprefix(folder): entry for entry in rows.files if entry.path.startswith(folder)}


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
