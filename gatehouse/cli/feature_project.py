"""Common code of the commands on features: a project's definitions, and its newest feature tables in a store."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from gatehouse.errors import ConfigurationError, MissingArtifactError
from gatehouse.features.definitions.changes import definition_of
from gatehouse.features.definitions.declarations import FeatureView
from gatehouse.features.definitions.repository import OnDemand, Repository, View, read_repository
from gatehouse.features.table_files import view_tables
from gatehouse.project.place import no_store_at, open_store, project_folder, store_address
from gatehouse.project.project import Project, load_project
from gatehouse.store.canonical import canonical_json
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore

ProjectOption = Annotated[Path | None, typer.Option(help="Folder of the project; default: this one.")]


@dataclass(frozen=True)
class Tables:
    """Feature tables of a project, with references to what they were computed from and to the table of every view.

    Attributes:
        as_of: Time up to which they were computed, as ISO 8601.
        changed: What changed in the definition of a view since the tables before.
    """

    store: ArtifactStore
    reference: Reference
    as_of: str
    snapshot: str
    definitions: str
    views: dict[str, str]
    changed: dict[str, list[str]]


@dataclass(frozen=True)
class FeatureProject:
    """A project's feature definitions, for the commands on features."""

    project: Project
    repository: Repository

    def view(self, name: str, extra_names: Iterable[str] = ()) -> View:
        """A view by name. Raises ConfigurationError that lists the views, and `extra_names` that are allowed too."""
        if name not in self.repository.views:
            names = ", ".join(sorted([*self.repository.views, *extra_names]))
            raise ConfigurationError(f"There is no feature view {name!r}: expected one of {names}.")
        return self.repository.views[name]

    def computed(self, service: str, views: Iterable[str]) -> tuple[str, list[OnDemand]]:
        """The service for `served`, and its on-demand views; empty if views were named."""
        service = "" if list(views) else service or self.project.file.features.service
        names = self.repository.services[service].on_demand if service else ()
        return service, [self.repository.on_demand[name] for name in names]

    def served(self, service: str, views: Iterable[str]) -> list[View]:
        """The named views, else those of a service, by default the project's. Raises ConfigurationError."""
        named = list(views)
        if named and service:
            raise ConfigurationError("Expected either --service or --view, found both.")
        names = named or self.repository.service(service or self.project.file.features.service).views
        return [self.view(name) for name in dict.fromkeys(names)]

    def history(self, store: ArtifactStore) -> list[Tables]:
        """All feature tables of the project, sorted by the time up to which they were computed, the newest last."""
        history = []
        for reference in store.references("feature-tables", self.project.name):
            details, inputs = store.manifest(reference).details, store.manifest(reference).derived_from
            views = view_tables(store, str(reference))
            origin = (str(details["as_of"]), inputs["snapshot"], inputs["definitions"])
            history.append(Tables(store, reference, *origin, views, details.get("changed", {})))
        now = str(self.project.definitions.reference)
        return sorted(history, key=lambda tables: (tables.as_of, tables.definitions == now, tables.reference.digest))

    def newest(self, store: ArtifactStore) -> list[Tables]:
        """The feature tables with the newest time, those computed with the present definitions last."""
        history = self.history(store)
        return [tables for tables in history if tables.as_of == history[-1].as_of]

    def tables(self, store: ArtifactStore, needed: Iterable[View]) -> Tables:
        """The newest feature tables that fit the present definitions for every needed view.

        If several with the same time fit but have different rows, a message says which one is used.

        Raises MissingArtifactError if there are none, or they were computed with other definitions of these views.
        """
        newest, views = self.newest(store), list(needed)
        if not newest:
            raise MissingArtifactError(
                f"The store {store.address} has no feature tables of {self.project.name}. `gatehouse run` computes "
                "them."
            )
        fitting = [tables for tables in newest if not any(self.misfit(tables, view) for view in views)]
        if not fitting:
            lines = [f"{view.name} ({misfit})" for view in views if (misfit := self.misfit(newest[-1], view))]
            more = f", nor do {len(newest) - 1} others of that moment" if newest[1:] else ""
            raise MissingArtifactError(
                f"The newest feature tables, {newest[-1].reference} as of {moment(newest[-1].as_of)}, do not hold what "
                f"the present definitions say of {', '.join(lines)}{more}. `gatehouse run` computes them again; or "
                "go back to the definitions that they were computed with."
            )
        *alternatives, chosen = fitting
        unlike = [
            str(tables.reference)
            for tables in alternatives
            if any(tables.views[view.name] != chosen.views[view.name] for view in views)
        ]
        if unlike:
            typer.echo(
                f"Several feature tables as of {moment(chosen.as_of)} fit the present definitions and hold other rows: "
                f"taking {chosen.reference}, the last by its digest; not {', '.join(unlike)}.",
                err=True,
            )
        return chosen

    def misfit(self, tables: Tables, view: View) -> str:
        """How a view's definition differs from the one of its table; empty if it does not."""
        reference = tables.views.get(view.name)
        if reference is None:
            return "no table"
        before, now = tables.store.manifest(reference).configuration, definition_of(self.repository, view)
        differing = []
        for part in ("code", "view", "keys", "sources"):  # The order of features is ignored.
            old, new = (
                {name: canonical_json(value) for name, value in side.items()}
                for side in (before.get(part, {}), now[part])
            )
            names = sorted(name for name in {*old, *new} if old.get(name) != new.get(name))
            differing += [name if part in ("code", "view") else f"{part} {name}" for name in names]
        return ", ".join(differing)


def open_features(project: Path | None) -> FeatureProject:
    """The project in a folder, by default the current one. Raises ConfigurationError if its definitions are wrong."""
    loaded = load_project(project_folder(project))
    return FeatureProject(loaded, read_repository(loaded.folder / loaded.file.features.repo))


def store_of(address: str, opened: FeatureProject) -> ArtifactStore:
    """The store at this address, by default that of the project. Raises ConfigurationError if it does not exist."""
    return open_store(store_address(address, opened.project.folder))


def store_if_there(address: str, opened: FeatureProject) -> ArtifactStore | None:
    """As `store_of`, but None if none is named and the project has none yet: definitions can be read without one."""
    if not address and no_store_at(store_address("", opened.project.folder)):
        return None
    return store_of(address, opened)


def span(length: timedelta | None, without: str = "") -> str:
    """A length of time in words: 2 d, 12 h, 1 d 6 h."""
    if length is None:
        return without
    seconds = int(length.total_seconds())
    parts = []
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        count, seconds = divmod(seconds, size)
        parts += [f"{count} {unit}"] if count else []
    return " ".join(parts) or "0"


def available(spec: FeatureView) -> str:
    """When the rows of a view become known, in words."""
    if spec.available is None:
        return "event time alone" if spec.event_time_only else "always (static)"
    lag = f" + {span(spec.available.lag)}" if spec.available.lag else ""
    return f"{spec.available.column}{lag}"


def moment(text: str) -> str:
    """An ISO 8601 time in UTC, in words."""
    return text.replace("T", " ").replace("+00:00", " UTC")
