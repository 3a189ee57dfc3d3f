"""Feature views that look further back than the source's rows reach: training sees only a part of their window."""

from collections.abc import Iterator, Mapping
from datetime import timedelta

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gatehouse.features.definitions.repository import Repository, tables_of
from gatehouse.runtime.counting import counted
from gatehouse.store.hidden_values import unless_hidden

_TOLD = 0.5
"""Share of the decisions for training from which on a window that is not full is worth a warning."""
_UNITS = (("day", timedelta(days=1)), ("hour", timedelta(hours=1)), ("minute", timedelta(minutes=1)))
_LONGEST = 1 << 62
"""Microseconds; more than lie between any two times."""


def short_history(
    repository: Repository,
    service: str,
    tables: Mapping[str, pa.Table],
    trained_on: npt.NDArray[np.datetime64],
) -> Iterator[str]:
    """A sentence for each view of a service whose window begins before the first row of a table, for most decisions.

    Args:
        repository: The feature definitions.
        service: The feature service that the training set is retrieved through.
        tables: All rows of the raw tables.
        trained_on: Decision times of the part train, datetime64[us] in UTC, shape (rows,).
    """
    if not len(trained_on):
        return
    for name in repository.services[service].views:
        view = repository.views[name]
        begins = dict(_begins(repository, view.query, tables))
        if view.spec.static or view.spec.window is None or not begins:
            continue
        table, first = max(begins.items(), key=lambda item: item[1])
        reach = np.timedelta64(min(view.spec.window // timedelta(microseconds=1), _LONGEST), "us")
        short = int((trained_on - first < reach).sum())
        if short >= _TOLD * len(trained_on):
            share = f"{short:,} of {counted(len(trained_on), 'decision')} to train on ({short / len(trained_on):.0%})"
            times, differ, later = f"at {_text(first)}", "", ""
            if short < len(trained_on):
                times += f"; from {_text(first + reach)} on all of this time is known"
                differ = ", and their features differ from those of later ones"
                later = ", train on later decisions (train_from of a split by time)"
            yield (
                f"views/{name}.sql: looks back {_words(view.spec.window)} (window), but raw.{table} begins too late "
                f"for that, {unless_hidden(times)}. So only a part of this time is known for {share}{differ}. Bring "
                f"earlier rows{later}, or look back less in the query and in `window`"
            )


def _begins(repository: Repository, query: str, tables: Mapping[str, pa.Table]) -> Iterator[tuple[str, np.datetime64]]:
    """The first event of each table of events that a query reads."""
    for table in tables_of(repository, [query]):
        if table in repository.sources and table in tables:
            first = pc.min(tables[table][repository.sources[table].event_time])
            if first.is_valid:
                yield table, np.datetime64(first.cast(pa.timestamp("us", "UTC")).value, "us")


def _words(span: timedelta) -> str:
    return next((counted(span // unit, name) for name, unit in _UNITS if span >= unit and not span % unit), str(span))


def _text(time: np.datetime64) -> str:
    return f"{time.astype('datetime64[s]')}Z"
