"""Finds infinite features in rows with a label, to which they are joined as for a training set: no model takes them."""

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa

from gatehouse.errors import ConfigurationError
from gatehouse.features.computing.on_demand import with_on_demand
from gatehouse.features.database import connect, quoted
from gatehouse.features.definitions.repository import Repository
from gatehouse.features.point_in_time.asof_join import asof_join
from gatehouse.features.point_in_time.view_join import joined
from gatehouse.metrics.arithmetic.finite import told_not_finite
from gatehouse.runtime.counting import counted


def infinite_features(
    repository: Repository, service: str, rows: pa.Table, tables: Mapping[str, pa.Table]
) -> Iterator[str]:
    """A sentence for each feature of a service that is infinite in one of the rows, or for a query that fails on them.

    Args:
        repository: The feature definitions.
        service: The feature service that a model reads.
        rows: Rows that a model learns from or is measured on, as `labelled_rows` gives them.
        tables: The feature tables as `compute_view` gives them, by view; nothing is said where one is missing.
    """
    wanted = repository.service(service)
    if not rows.num_rows or not tables.keys() >= set(wanted.views):
        return
    on_demand = [repository.on_demand[name] for name in wanted.on_demand]
    with connect() as connection:
        for name in wanted.views:
            connection.register(f"table of {name}", tables[name])
        joins = [joined(repository.views[name], quoted(f"table of {name}")) for name in wanted.views]
        found = asof_join(connection, rows, "decision_time", joins)
    try:
        found = with_on_demand(on_demand, found)
    except ConfigurationError as error:
        yield str(error)
    files = {feature: f"views/{name}.sql" for name in wanted.views for feature in repository.views[name].spec.features}
    files |= {feature: f"on_demand/{view.name}.sql" for view in on_demand for feature in view.spec.features}
    key = rows.column_names[0]
    for feature in (name for name in files if name in found.column_names):
        if pa.types.is_floating(found[feature].type):
            values = found[feature].to_numpy()
            if len(wrong := np.flatnonzero(np.isinf(values))):
                first, of = int(wrong[0]), f"{counted(len(values), 'row')} with a label"
                told = told_not_finite(feature, wrong, of, key, rows[key][first], values[first])
                yield f"{files[feature]}: {told}"
