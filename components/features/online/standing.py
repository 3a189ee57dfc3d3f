"""The skew of an online store as it stands: each view at the moment up to which it was materialized or pushed.

A view is compared with the feature tables that it was written with, as later ones may say something else of their
newest rows; one that was pushed since is compared with its pushed table. Nothing is written.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from gatehouse.components.artifacts.reference import Reference
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.features.definitions.repository import View, check_out
from gatehouse.components.features.online.skew import Skew, decided_last, measure_skew
from gatehouse.components.features.online.store import OnlineStore, OnlineView, online_view, require_materialized
from gatehouse.components.features.streaming.batch_folder import BatchFolder, streams_folder
from gatehouse.components.features.table_files import feature_files, raw_tables

_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
_EXAMPLES = 3  # Of each view.


@dataclass(frozen=True)
class Standing:
    """The skew of one view.

    Attributes:
        view: The view.
        as_of: The moment of the comparison.
        feature_tables: Reference of those that were written.
        pushed: Whether it was pushed since.
        skew: What was compared.
    """

    view: OnlineView
    as_of: datetime
    feature_tables: str
    pushed: bool
    skew: Skew

    @property
    def unseen(self) -> str:
        """Why no value was compared; empty where one was."""
        return self.skew.why_unseen(self.view) if self.skew.unseen else ""

    def told(self) -> dict[str, Any]:
        """As people and programs are told of it."""
        return {
            "view": self.view.name,
            "as_of": self.as_of.isoformat(),
            "feature_tables": self.feature_tables,
            "pushed": self.pushed,
            "unseen": self.unseen,
            "left_out": self.skew.left_out,
            "values": self.skew.values,
            "differing": sum(self.skew.differing.values()),
            "examples": [
                {"feature": one.feature, "key": key, "online": there, "offline": here}
                for one in self.skew.compared
                for key, there, here in one.examples
            ][:_EXAMPLES],
        }


def standing_skew(
    store: ArtifactStore, online: OnlineStore, project: str, views: Sequence[View], feature_tables: str
) -> Iterator[Standing]:
    """The skew of every view.

    Args:
        store: Holds the feature tables.
        online: The online store.
        project: Name of the project.
        views: What is compared.
        feature_tables: Reference of those that count where the online store does not say which it was written with.

    Raises:
        ConfigurationError: if the online store holds nothing of a view.
        MissingArtifactError: if feature tables that were written are gone.
    """
    known = require_materialized(online, map(online_view, views))
    recent: dict[tuple[str, datetime], pa.Table] = {}
    for view in views:
        until = _BEGINNING + timedelta(microseconds=known[view.name])
        written = online.state(view.name).tables or feature_tables
        if (written, until) not in recent:
            recent[written, until] = _decided_last(store, written, until)
        pushed = _pushed(store, project, written, view.name, until)
        moment, files = pushed or (until, [*feature_files(store, written)[view.name].values()])
        wanted, late = online_view(view), [view.name] if pushed else []
        skew = measure_skew(online, [wanted], {view.name: files}, recent[written, until], moment, {}, late)
        yield Standing(wanted, moment, written, bool(pushed), skew)


def _decided_last(store: ArtifactStore, feature_tables: str, until: datetime) -> pa.Table:
    """The entity keys of the rows decided last, by the definitions and the snapshot of feature tables."""
    inputs = store.manifest(feature_tables).derived_from
    with store.workspace() as workspace:
        repository = check_out(store, inputs["definitions"], workspace / "feature_repo")
    return decided_last(repository, raw_tables(store, inputs["snapshot"]), until)


def _pushed(
    store: ArtifactStore, project: str, feature_tables: str, view: str, until: datetime
) -> tuple[datetime, list[Path]] | None:
    """Up to when a view was pushed on top of feature tables, and the files of its table; None if not since `until`."""
    folder = streams_folder(store, project, Reference.parse(feature_tables))
    batches = BatchFolder(folder) if folder.is_dir() else None
    state = batches.state() if batches else None
    if batches is None or state is None or view not in state.views or state.as_of <= until:
        return None
    return state.as_of, list(batches.table(state.number, view).values())
