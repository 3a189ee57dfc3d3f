"""The raw tables that queries read: the files that a span of time needs, and where their rows cut time into pieces."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property

from gatehouse.errors import ConfigurationError
from gatehouse.features.computing.event_hours import hours_of
from gatehouse.features.computing.spans import (
    ALL_TIME,
    BEGINNING,
    FileHours,
    Span,
    Times,
    changed_hours,
    divided,
    hours_between,
    needed_files,
    newest_event,
    shifted,
)
from gatehouse.features.computing.table_pieces import RawFiles
from gatehouse.features.definitions.repository import Repository, tables_of
from gatehouse.pieces.piece import ROWS
from gatehouse.store.store import ArtifactStore

_SAMPLE, _MORE = 16, 4
"""A window is checked on a part of a piece this much smaller, with the rows of a piece this much smaller read as
well."""


@dataclass(frozen=True)
class Sources:
    """The raw tables of a snapshot, by reference, and the hours of their events, and of earlier versions of them."""

    store: ArtifactStore
    repository: Repository
    datasets: Mapping[str, str]
    as_of: datetime
    tables: Sequence[str]
    hours: Mapping[str, Sequence[FileHours]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        store: ArtifactStore,
        repository: Repository,
        datasets: Mapping[str, str],
        as_of: datetime,
        queries: list[str],
    ) -> "Sources":
        """The tables that queries read, not counted yet. Raises ConfigurationError if the snapshot lacks one."""
        tables = tables_of(repository, queries)
        for table in tables:
            if table not in datasets:
                raise ConfigurationError(
                    f"The feature repository reads raw.{table}, which is not in the snapshot: expected one of "
                    f"{', '.join(sorted(datasets))}, in the same upper and lower case."
                )
        return cls(store, repository, datasets, as_of, tables)

    @cached_property
    def _between(self) -> dict[str, Times]:
        return {dataset: hours_between(files) for dataset, files in self.hours.items()}

    @property
    def one_piece(self) -> bool:
        """Whether the tables that grow have no more rows than a piece."""
        manifests = [
            self.store.manifest(self.datasets[table]) for table in self.tables if table in self.repository.sources
        ]
        return sum(entry.rows or 0 for manifest in manifests for entry in manifest.files) <= ROWS

    def counted(self, earlier: Sequence[Mapping[str, str]] = ()) -> "Sources":
        """The same with hours; `earlier` has the references of earlier versions of tables, by table."""
        versions = [
            (table, version[table])
            for version in (self.datasets, *earlier)
            for table in self.tables
            if table in version
        ]
        sources = self.repository.sources
        timed = [(dataset, sources[table].event_time) for table, dataset in versions if table in sources]
        return replace(self, hours=hours_of(self.store, timed))

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

    def files(self, queries: list[str], window: timedelta | None, span: Span) -> dict[str, RawFiles]:
        """The raw files with the rows that queries need in a span; of a table without such rows, its first file.

        All files of a table whose hours are not counted.
        """
        files = {}
        for table in tables_of(self.repository, queries):
            source, dataset = self.repository.sources.get(table), self.datasets[table]
            if source and dataset in self.hours:
                hours = self.hours[dataset]
                needed = needed_files(hours, self._between[dataset], span, source, window)
                paths = [file.path for file in needed or hours[:1]]
            else:
                paths = [entry.path for entry in self.store.manifest(dataset).files]
            files[table] = RawFiles(dataset=dataset, paths=tuple(paths))
        return files

    def divided(self, queries: list[str], span: Span = ALL_TIME, share: int = 1) -> list[Span]:
        """The span in parts, each for the rows of a piece of the tables that queries read, or a `share` of them."""
        names = [name for name in tables_of(self.repository, queries) if name in self.repository.sources]
        return divided(span, [self.hours[self.datasets[name]] for name in names], ROWS // share)

    def sample(self, queries: list[str], span: Span = ALL_TIME) -> tuple[Span, Span]:
        """A small part in the middle of a span, and what is around it, to check the window of queries with."""
        small = self.divided(queries, span, _SAMPLE)
        middle, more = len(small) // 2, _SAMPLE // _MORE
        first, last = max(middle - more, 0), min(middle + more, len(small) - 1)
        return small[middle], Span(small[first].start, small[last].end)
