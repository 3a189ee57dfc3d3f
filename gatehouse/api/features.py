"""Feature views of a project: their tables, versions and lineage, retrieval, and the online store."""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from gatehouse.configuration.times import in_utc
from gatehouse.data.snapshot.deliveries import Deliveries
from gatehouse.data.snapshot.stage import SnapshotRequest, snapshot
from gatehouse.data.sources.catalog import SourceSpec
from gatehouse.data.sources.kafka import KafkaReader, KafkaSource
from gatehouse.data.validation.stage import ValidateRequest, validate
from gatehouse.errors import ConfigurationError, ContractBreachError, MissingArtifactError
from gatehouse.features.computing.previous.stage import PreviousRequest, previous_features
from gatehouse.features.computing.stage import ComputeRequest, compute_features
from gatehouse.features.definitions.changes import definition_of
from gatehouse.features.definitions.declarations import Available
from gatehouse.features.definitions.repository import OnDemand, Repository, View, read_repository
from gatehouse.features.lineage import Lineage, lineage_of
from gatehouse.features.table_files import view_tables
from gatehouse.online.serving import open_online
from gatehouse.online.skew import Skew, present_skew, skew_reasons
from gatehouse.online.stage import MaterializeRequest, MaterializeResult, materialize
from gatehouse.online.store import online_view, require_materialized
from gatehouse.operations.preparing_stage import require_verdict
from gatehouse.project.place import no_store_at, open_store, project_folder, store_address
from gatehouse.project.project import Project, load_project
from gatehouse.store.canonical import canonical_json
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Tables:
    """Feature tables of a project: the time up to which they were computed, their inputs, and the table of every view.

    `changed` is what changed in the definition of a view since the tables before.
    """

    reference: Reference
    as_of: datetime
    snapshot: str
    definitions: str
    views: dict[str, str]
    changed: dict[str, list[str]]


@dataclass(frozen=True)
class ViewFacts:
    """A feature view: stored, on demand, or of the label; its newest table, and how that `differs` in its definition.

    `available` is when a row becomes known.
    """

    view: str
    kind: str
    description: str = field(repr=False)
    entities: tuple[str, ...]
    features: dict[str, str]
    version: int | None = None
    ttl: timedelta | None = None
    window: timedelta | None = field(default=None, repr=False)
    freshness: timedelta | None = field(default=None, repr=False)
    available: str = ""
    reads: tuple[str, ...] = field(default=(), repr=False)
    request: Mapping[str, str] = field(default_factory=dict, repr=False)
    rows: int | None = None
    table: str = ""
    differs: str = ""


@dataclass(frozen=True)
class Standing:
    """The skew of the online store: its share of the compared values, each view, and why it is too much."""

    skew: float
    values: int
    max_skew: float
    views: list[dict[str, Any]]
    reasons: list[str]


@dataclass(frozen=True)
class Batch:
    """One batch of a stream.

    Attributes:
        rows: Rows of the snapshot; `new` of them came with this batch, the first of which counts all.
        rows_a_second: The new rows, by the time from the look at the source until they were served.
        written: Rows that changed the content of the online store.
        behind: Records that came since the look; None for a source that has no offsets.
        age: By the clock, how long ago the newest row became known.
        warnings: What the guards say, such as the number of late rows.
        verdict: Whether values read back from the online store are those of the feature tables: pass or fail.
    """

    snapshot: str
    rows: int
    new: int
    rows_a_second: float
    written: int
    seconds: float
    behind: int | None
    age: timedelta
    warnings: tuple[str, ...]
    verdict: str


@dataclass(frozen=True)
class Features:
    """A project's feature definitions, and its store; None while there is none and it is not needed."""

    project: Project
    repository: Repository
    opened: ArtifactStore | None

    @classmethod
    def of(cls, folder: Path | None, address: str = "", needed: bool = False) -> "Features":
        """Open a project with its store. Raises ConfigurationError if one of them is not there."""
        project = load_project(project_folder(folder))
        where = store_address(address, project.folder)
        opened = None if not address and not needed and no_store_at(where) else open_store(where)
        return cls(project, read_repository(project.folder / project.file.features.repo), opened)

    @property
    def store(self) -> ArtifactStore:
        """The store, which is there where it was needed."""
        assert self.opened
        return self.opened

    @property
    def everything(self) -> dict[str, View | OnDemand]:
        """The stored views and those on demand, by name; no two give a feature with the same name."""
        return {**self.repository.views, **self.repository.on_demand}

    def view(self, name: str) -> View | OnDemand:
        """A view by name. Raises ConfigurationError that lists the views."""
        if name not in self.everything:
            names = ", ".join(sorted([*self.everything, self.repository.label.name]))
            raise ConfigurationError(f"There is no feature view {name!r}: expected one of {names}.")
        return self.everything[name]

    def history(self) -> list[Tables]:
        """All feature tables of the project by the time up to which they were computed, the newest last."""
        tables = []
        for reference in self.opened.references("feature-tables", self.project.name) if self.opened else ():
            manifest = self.store.manifest(reference)
            inputs, as_of = manifest.derived_from, datetime.fromisoformat(str(manifest.details["as_of"]))
            views, changed = view_tables(self.store, str(reference)), manifest.details.get("changed", {})
            tables.append(Tables(reference, as_of, inputs["snapshot"], inputs["definitions"], views, changed))
        now = str(self.project.definitions.reference)
        return sorted(tables, key=lambda table: (table.as_of, table.definitions == now, table.reference.digest))

    def misfit(self, tables: Tables, view: View) -> str:
        """How a view's definition differs from the one of its table; empty if it does not."""
        if view.name not in tables.views:
            return "no table"
        before = self.store.manifest(tables.views[view.name]).configuration
        now, differing = definition_of(self.repository, view), []
        for part in ("code", "view", "keys", "sources"):  # The order of features is ignored.
            old, new = (
                {name: canonical_json(value) for name, value in side.items()}
                for side in (before.get(part, {}), now[part])
            )
            names = sorted(name for name in {*old, *new} if old.get(name) != new.get(name))
            differing += [name if part in ("code", "view") else f"{part} {name}" for name in names]
        return ", ".join(differing)

    def tables(self, views: Sequence[View]) -> Tables:
        """The newest feature tables that fit the present definitions of these views.

        If several of one time fit and have different rows, the log says which is used. Raises MissingArtifactError if
        there are none, or they were computed with other definitions.
        """
        history = self.history()
        newest = [tables for tables in history if tables.as_of == history[-1].as_of]
        if not newest:
            raise MissingArtifactError(
                f"The store {self.store.address} has no feature tables of {self.project.name}. `gatehouse run` "
                "computes them."
            )
        fitting = [tables for tables in newest if not any(self.misfit(tables, view) for view in views)]
        if not fitting:
            lines = [f"{view.name} ({misfit})" for view in views if (misfit := self.misfit(newest[-1], view))]
            more = f", nor do {len(newest) - 1} others of that moment" if newest[1:] else ""
            raise MissingArtifactError(
                f"The newest feature tables, {newest[-1].reference} as of {_moment(newest[-1].as_of)}, do not hold "
                f"what the present definitions say of {', '.join(lines)}{more}. `gatehouse run` computes them anew; or "
                "go back to the definitions that they were computed with."
            )
        *others, chosen = fitting
        unlike = [
            str(tables.reference)
            for tables in others
            if any(tables.views[view.name] != chosen.views[view.name] for view in views)
        ]
        if unlike:
            logger.warning(
                "Several feature tables as of %s fit the present definitions and hold other rows: taking %s, the last "
                "by its digest; not %s.",
                *(_moment(chosen.as_of), chosen.reference, ", ".join(unlike)),
            )
        return chosen

    def views(self) -> list[ViewFacts]:
        """All views, with the newest table of each: of the newest time, those with most of the present definitions."""
        history, stored = self.history(), self.repository.views.values()
        newest = [tables for tables in history if tables.as_of == history[-1].as_of][::-1]
        fits = [sum(not self.misfit(tables, view) for view in stored) for tables in newest]
        tables = newest[fits.index(max(fits))] if newest else None
        return [self.facts(view, tables) for view in self.everything.values()]

    def facts(self, view: View | OnDemand, tables: Tables | None = None) -> ViewFacts:
        """The facts of a view, and its table among some tables."""
        if isinstance(view, OnDemand):
            return ViewFacts(
                *(view.name, "on demand", view.spec.description, ()),
                {**view.spec.features},
                available=known_from(view),
                reads=tuple(view.spec.views),
                request={**view.spec.request},
            )
        reference = tables.views.get(view.name, "") if tables else ""
        spec = view.spec
        return ViewFacts(
            *(view.name, "stored", spec.description, tuple(spec.entities)),
            {**spec.features},
            version=spec.version,
            ttl=spec.ttl,
            window=spec.window,
            freshness=spec.freshness,
            available=known_from(view),
            rows=self.store.manifest(reference).rows if reference else None,
            table=reference,
            differs=self.misfit(tables, view) if tables and reference else "",
        )

    def describe(self, name: str) -> dict[str, Any]:
        """The facts of a view, also of the label's: its definition and SQL, and its versions with what changed."""
        label, versions = self.repository.label, list[dict[str, Any]]()
        if name == label.name:
            facts = asdict(
                ViewFacts(name, "label", label.description, tuple(label.entities), {label.label: label.task})
            )
            facts |= {"decision_time": label.decision_time, "horizon": label.horizon, "set_aside": label.set_aside}
            facts |= {"window": label.window, "lead": label.lead}
            return facts | {"available": _with_lag(label.arrives), "sql": self.repository.entity_rows}
        view = self.view(name)
        for tables in self.history() if isinstance(view, View) else ():
            reference = tables.views.get(name)
            if reference is None or (versions and versions[-1]["table"] == reference):
                continue
            manifest = self.store.manifest(reference)
            version = {"version": manifest.details["version"], "as_of": tables.as_of, "table": reference}
            versions.append(version | {"rows": manifest.rows, "changed": list(tables.changed.get(name, []))})
        return asdict(self.facts(view)) | {"versions": versions, "sql": view.query}

    def lineage(self, name: str) -> tuple[str, dict[str, Lineage]]:
        """When a feature, or those of a view, are known, and the raw columns that each is computed from."""
        owner, _, feature = name.partition(".")
        if owner not in self.everything and not feature:
            owners = (view.name for view in self.everything.values() if name in view.spec.features)
            owner, feature = next(((view, name) for view in owners), (owner, ""))
        view = self.view(owner)
        if feature and feature not in view.spec.features:
            raise ConfigurationError(
                f"The view {owner} has no feature {feature!r}: expected one of {', '.join(view.spec.features)}."
            )
        # The columns of the raw tables: from the newest snapshot, or as the source declares them.
        columns = {table: list(declared.columns) for table, declared in self.project.file.source.tables.items()}
        if history := self.history():
            datasets = self.store.manifest(history[-1].snapshot).derived_from
            manifests = {table: self.store.manifest(dataset) for table, dataset in datasets.items()}
            columns = {table: [column.name for column in read.columns] for table, read in manifests.items()}
        features = [feature] if feature else list(view.spec.features)
        return known_from(view), {
            f"{view.name}.{feature}": lineage_of(self.repository, view, feature, columns) for feature in features
        }

    def served(self, service: str = "", names: Sequence[str] = ()) -> tuple[list[View], list[OnDemand]]:
        """The named views with those that they read; else those of a service, by default the project's."""
        if names and service:
            raise ConfigurationError("Expected either --service or --view, found both.")
        repository = self.repository
        chosen = None if names else repository.service(service or self.project.file.features.service)
        views = [self.view(name) for name in (names or [*chosen.views, *chosen.on_demand] if chosen else names)]
        on_demand = [view for view in views if isinstance(view, OnDemand)]
        read = [repository.views[name] for computed in on_demand for name in computed.spec.views] if not chosen else []
        stored = [*(view for view in views if isinstance(view, View)), *read]
        return list({view.name: view for view in stored}.values()), on_demand

    def retrieve(
        self, rows: Path, to: Path, service: str = "", names: Sequence[str] = (), time: str = "", at: str | None = None
    ) -> tuple[int, int, dict[str, int]]:
        """Join features to the entity rows of a file, and write them to another; with `at`, from the online store.

        Gives the number of rows and columns, and by view how many rows have a value: a view without any often means a
        wrong key or time. `at` is a time in ISO 8601, empty for now.
        """
        from gatehouse.features.computing.on_demand import with_on_demand
        from gatehouse.features.database import connect, rows_of
        from gatehouse.features.definitions.declarations import EVENT_TIMESTAMP
        from gatehouse.features.point_in_time.asof_join import asof_join
        from gatehouse.features.point_in_time.asof_join import joined as join_of
        from gatehouse.features.point_in_time.entity_file import read_entity_rows, time_of, write_rows
        from gatehouse.online.serving import with_online

        if to.resolve() == rows.resolve():
            raise ConfigurationError(f"{to}: expected another file to write than the entity rows, which would be lost.")
        views, on_demand = self.served(service, names)
        keys = {key: self.repository.entities[key] for view in views for key in view.spec.entities}
        values = {name: kind for computed in on_demand for name, kind in computed.spec.request.items()}
        table = read_entity_rows(rows, keys, values, "" if at is not None else time or EVENT_TIMESTAMP)
        both: list[View | OnDemand] = [*views, *on_demand]
        features = {view.name: list(view.spec.features) for view in both}
        if hidden := sorted({name for named in features.values() for name in named} & {*table.column_names}):
            raise ConfigurationError(
                f"{rows.name}: the features {', '.join(hidden)} would hide columns of this name. Rename these."
            )
        if at is not None:
            online = open_online(self.store, self.project.name, self.repository.folder)
            require_materialized(online, map(online_view, views))
            joined = with_online(online, views, on_demand, table, in_utc("--at", at) if at else datetime.now(UTC))
        else:
            tables = self.tables(views)
            joins = [join_of(view, rows_of(self.store.paths(tables.views[view.name]))) for view in views]
            with connect() as connection:
                joined = asof_join(connection, table, time_of(table, time, rows.name), joins)
            joined = with_on_demand(on_demand, joined)
        write_rows([joined], to)
        filled = {
            view: max(joined.num_rows - joined[name].null_count for name in named) for view, named in features.items()
        }
        return joined.num_rows, len(joined.column_names), filled

    def materialize(self, service: str = "", as_of: str = "", rewrite: bool = False) -> MaterializeResult:
        """Bring the online store up to the newest feature tables, and compare."""
        tables, settings = self.tables(self.served(service)[0]), self.project.file.features
        # A time after that of the tables would move the watermark past rows of later tables.
        until = in_utc("--as-of", as_of) if as_of else tables.as_of
        if until > tables.as_of:
            raise ConfigurationError(
                f"--as-of: {tables.reference} was computed up to {_moment(tables.as_of)}; expected a time until then, "
                f"found {_moment(until)}. `gatehouse run` computes newer tables."
            )
        request = MaterializeRequest(
            snapshot=tables.snapshot,
            feature_tables=str(tables.reference),
            definitions=str(self.project.definitions.publish(self.store)),
            project=self.project.name,
            service=service or settings.service,
            as_of=until.isoformat(),
            max_skew=settings.max_skew,
            rewrite=rewrite,
        )
        return materialize(request, self.store)

    def stream(self, service: str = "", every: timedelta = timedelta(seconds=5)) -> Iterator[Batch]:
        """Bring the online store up to the source again and again: each batch runs the stages of a materialization.

        A batch reads what came since the last one, judges it by the contract, computes the features of the hours that
        it touches with the same SQL as a run, and writes what changed. All that it knows is in the artifact store and
        in the online store, so a stream that was killed goes on where it was. Gives a batch where something was new;
        between two looks at the source it waits until `every` is over. Raises ContractBreachError if rows break the
        contract, and what the stages raise.
        """
        settings = self.project.file.features
        contract = str(self.project.contract.publish(self.store))
        definitions = str(self.project.definitions.publish(self.store))
        baseline, snapshots, earlier = self.project.file.baseline, self.project.file.snapshots, 0
        while True:
            began = time.monotonic()
            took = snapshot(SnapshotRequest(source=self.project.source), self.store)
            rows = sum(took.rows.values())
            if rows == earlier and took.unchanged:
                time.sleep(max(0.0, every.total_seconds() - (time.monotonic() - began)))
                continue
            about = {"contract": contract, "baseline": baseline, "snapshots": snapshots, "delivery": took.delivery}
            judged = validate(ValidateRequest.model_validate({"snapshot": took.snapshot} | about), self.store)
            require_verdict(
                "The snapshot breaks its contract",
                judged.verdict,
                judged.reasons,
                judged.validation,
                ContractBreachError,
            )
            origin = {"snapshot": took.snapshot, "definitions": definitions, "project": self.project.name}
            parent = previous_features(PreviousRequest(**origin), self.store).feature_tables
            tables = compute_features(ComputeRequest(**origin, parent=parent), self.store).feature_tables
            request = MaterializeRequest(
                **origin,
                feature_tables=tables,
                service=service or settings.service,
                as_of=took.as_of,
                max_skew=settings.max_skew,
            )
            written = materialize(request, self.store)
            seconds = time.monotonic() - began
            yield Batch(
                snapshot=took.snapshot,
                rows=rows,
                new=rows - earlier,
                rows_a_second=(rows - earlier) / seconds,
                written=sum(written.written.values()),
                seconds=seconds,
                behind=_behind(self.project.source, took.snapshot, self.store),
                age=datetime.now(UTC) - datetime.fromisoformat(took.as_of),
                warnings=took.warnings,
                verdict=written.verdict,
            )
            earlier = rows
            time.sleep(max(0.0, every.total_seconds() - seconds))

    def skew(self, service: str = "") -> Standing:
        """Compare a sample of the online store with the offline values, each view up to where it was materialized."""
        views, limit = self.served(service)[0], self.project.file.features.max_skew
        newest = str(self.tables(views).reference)
        online = open_online(self.store, self.project.name, self.repository.folder)
        results = list(present_skew(self.store, online, views, newest))
        total = Skew(tuple(comparison for result in results for comparison in result.skew.compared))
        reasons = skew_reasons(total, [result.view for result in results], limit)
        reasons += [result.not_compared for result in results if result.not_compared]
        rows = [result.body() | {"newest": result.feature_tables == newest} for result in results]
        return Standing(total.share, total.values, limit, rows, reasons)


def _behind(source: SourceSpec, snapshot: str, store: ArtifactStore) -> int | None:
    """Number of offsets that a source of topics has and a snapshot of it did not see."""
    if not isinstance(source, KafkaSource):
        return None
    delivery = Deliveries(store, source.name, "").of(snapshot)
    assert delivery  # The record of a snapshot is older than the snapshot.
    with KafkaReader(source) as reader:
        ends = {table: reader.ends(table) for table in source.tables}
    seen = {table: state["offsets"] for table, state in delivery.state.items()}
    behind: int = sum(
        high - seen[table].get(str(partition), [0, low])[1]
        for table, partitions in ends.items()
        for partition, (low, high) in partitions.items()
    )
    return behind


def known_from(view: View | OnDemand) -> str:
    """When the rows of a view become known, in words."""
    if isinstance(view, OnDemand):
        return "on demand"
    if view.spec.available is None:
        return "event time alone" if view.spec.event_time_only else "always (static)"
    return _with_lag(view.spec.available)


def _with_lag(available: Available) -> str:
    from gatehouse.reports.format import duration

    return f"{available.column} + {duration(available.lag.total_seconds())}" if available.lag else available.column


def _moment(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S} UTC"
