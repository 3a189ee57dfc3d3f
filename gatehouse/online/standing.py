"""The present skew of an online store: each view at the moment up to which it was materialized or pushed.

A view is compared with the feature tables that it was written from, because later tables may have other values in
their newest rows. A view that was pushed after that is compared with the pushed table of that batch. A view that
cannot be compared is left out, with the reason. Nothing is written.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from gatehouse.features.definitions.repository import View, check_out
from gatehouse.features.table_files import feature_files, raw_tables
from gatehouse.online.skew import Skew, decided_last, measure_skew
from gatehouse.online.store import OnlineStore, OnlineView, State, epoch_us, online_view, require_materialized
from gatehouse.online.streaming.batch_folder import BatchFolder, streams_folder
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore

_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
_EXAMPLES = 3  # Per view.
_ATTEMPTS = 3


@dataclass(frozen=True)
class Standing:
    """The skew of one view.

    Attributes:
        view: The view.
        as_of: The moment of the comparison.
        feature_tables: Reference of the tables that were written.
        pushed: Whether it was pushed after that.
        skew: The comparison.
        left_out: Why there is no comparison: the view is being written, or the pushed batch is not on this machine.
    """

    view: OnlineView
    as_of: datetime
    feature_tables: str
    pushed: bool
    skew: Skew
    left_out: str = ""

    @property
    def unseen(self) -> str:
        """Why no value was compared; empty if there were values."""
        return self.skew.why_unseen(self.view) if self.skew.unseen else ""

    def told(self) -> dict[str, Any]:
        """As a dictionary for JSON and messages."""
        return {
            "view": self.view.name,
            "as_of": self.as_of.isoformat(),
            "feature_tables": self.feature_tables,
            "pushed": self.pushed,
            "unseen": self.unseen,
            "not_compared": self.left_out,
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
        store: The artifact store with the feature tables.
        online: The online store.
        project: Name of the project.
        views: The views to compare.
        feature_tables: Reference of feature tables to use where the online store does not name those it was written
            from.

    Raises:
        ConfigurationError: if the online store has no rows of a view.
        MissingArtifactError: if feature tables that were written no longer exist.
        StoreError: if the online store cannot be reached.
    """
    require_materialized(online, map(online_view, views))
    decided = lru_cache(partial(_decided_last, store))
    for view in views:
        wanted = online_view(view)
        for _ in range(_ATTEMPTS):
            state = online.state(view.name)
            until, written = _moment(state.known or 0), state.tables or feature_tables
            pushed, elsewhere = _pushed(store, project, written, view.name, state)
            if elsewhere:
                yield Standing(wanted, _moment(state.pushed or 0), written, True, Skew(()), elsewhere)
                break
            moment, files = pushed or (until, [*feature_files(store, written)[view.name].values()])
            late = [view.name] if pushed else []
            skew = measure_skew(online, [wanted], {view.name: files}, decided(written, until), moment, {}, late)
            if online.state(view.name) == state and not state.target:
                yield Standing(wanted, moment, written, bool(pushed), skew)
                break
        else:
            why = (
                f"{view.name}: expected that nobody writes it to the online store while it is compared, found a writer "
                f"{_ATTEMPTS} times. Compare when it has ended; where none is running, one was killed: `gatehouse "
                "features materialize` ends its work."
            )
            yield Standing(wanted, moment, written, bool(pushed), Skew(()), why)


def _moment(microseconds: int) -> datetime:
    return _BEGINNING + timedelta(microseconds=microseconds)


def _decided_last(store: ArtifactStore, feature_tables: str, until: datetime) -> pa.Table:
    """The entity keys of the rows decided last, by the definitions and the snapshot of feature tables."""
    inputs = store.manifest(feature_tables).derived_from
    with store.workspace() as workspace:
        repository = check_out(store, inputs["definitions"], workspace / "feature_repo")
    return decided_last(repository, raw_tables(store, inputs["snapshot"]), until)


def _pushed(
    store: ArtifactStore, project: str, feature_tables: str, view: str, state: State
) -> tuple[tuple[datetime, list[Path]] | None, str]:
    """Time up to which a view was pushed after materialization, and its table's files; None if it was not pushed.

    If it was pushed and the files are missing, also the reason: the batch is not on this machine.
    """
    if state.pushed is None or state.known is None or state.pushed <= state.known:
        return None, ""
    folder = streams_folder(store, project, Reference.parse(feature_tables))
    batch = BatchFolder(folder).state() if folder.is_dir() else None
    if batch is None or epoch_us(batch.as_of) != state.pushed:
        return None, (
            f"{view}: expected the batch that was pushed to the online store up to "
            f"{_moment(state.pushed).isoformat()} in {folder}, found "
            f"{f'one up to {batch.as_of.isoformat()}' if batch else 'none'}. Compare where `gatehouse features push` "
            "runs, or when newer feature tables are materialized."
        )
    return (batch.as_of, list(BatchFolder(folder).table(batch.number, view).values())), ""
