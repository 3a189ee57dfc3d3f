"""Finds the source columns of a feature by following the repository's SQL, column by column, to `raw.<table>`.

The result names the tables that the queries name: views, staging tables, raw tables.
"""

from collections.abc import Iterable, Iterator, Mapping

from gatehouse.features.definitions.declarations import EVENT_TIMESTAMP
from gatehouse.features.definitions.repository import OnDemand, Repository, View, staged_by
from gatehouse.features.lineage.graph import RAW, REQUEST, ROWS, Column, Edge, Lineage, leading_to
from gatehouse.features.lineage.macros import macros_of
from gatehouse.features.lineage.query import Query

_GIVEN = "given"


def lineage_of(
    repository: Repository, view: View, features: Iterable[str], columns: Mapping[str, Iterable[str]]
) -> Lineage:
    """The lineage of some features of a view.

    Args:
        repository: The definitions.
        view: The view.
        features: Names of its features.
        columns: Columns of every raw table, by its name. A table that is missing here is followed by column name only.

    Raises:
        ConfigurationError: naming the file whose SQL cannot be followed.
    """
    spec = view.spec
    # The keys and times of a view decide which of its rows a join takes.
    deciding = [*spec.entities, EVENT_TIMESTAMP, *([spec.available.column] if spec.available else [])]
    return _lineage(repository, "views", view.name, view.query, deciding, features, columns)


def lineage_of_label(repository: Repository, columns: Mapping[str, Iterable[str]]) -> Lineage:
    """The lineage of the label.

    Args:
        repository: The definitions.
        columns: As in `lineage_of`.

    Raises:
        ConfigurationError: as `lineage_of`.
    """
    label = repository.label
    return _lineage(repository, "labels", label.name, repository.entity_rows, (), [label.label], columns)


def _lineage(
    repository: Repository,
    folder: str,
    name: str,
    query: str,
    deciding: Iterable[str],
    wanted: Iterable[str],
    columns: Mapping[str, Iterable[str]],
) -> Lineage:
    macros = macros_of(repository.macros)
    schema = {RAW: {table: list(names) for table, names in columns.items()}, "staging": dict[str, list[str]]()}
    edges: dict[Edge, None] = {}
    for staged in staged_by(repository, [query]):
        read = Query(f"staging/{staged}.sql", repository.staging[staged], schema, macros)
        schema["staging"][staged] = read.names
        edges |= dict.fromkeys(_edges(read, f"staging.{staged}", ()))
    read = Query(f"{folder}/{name}.sql", query, schema, macros)
    edges |= dict.fromkeys(_edges(read, name, deciding))
    ends = tuple(Column(name, each) for each in wanted)
    for end in ends:
        read.origins(end.name)  # A column that the query does not give is an error, not one without sources.
    return Lineage(ends, tuple(leading_to(edges, ends)))


def lineage_on_demand(
    repository: Repository, view: OnDemand, features: Iterable[str], columns: Mapping[str, Iterable[str]]
) -> Lineage:
    """The lineage of some features of an on-demand view, through the views that it reads, and to request values.

    Args:
        repository: The definitions.
        view: The on-demand view.
        features: Names of its features.
        columns: As in `lineage_of`.

    Raises:
        ConfigurationError: as `lineage_of`.
    """
    # The query reads one table, `rows`. A row has the features of several views and the request values.
    owners = dict.fromkeys(view.spec.request, REQUEST)
    owners |= {name: owner for owner in view.spec.views for name in repository.views[owner].spec.features}
    query = f"WITH rows AS (FROM {_GIVEN}.rows) SELECT * FROM (\n{view.query}\n)"
    schema = {_GIVEN: {"rows": list(view.inputs)}}
    read = Query(f"on_demand/{view.name}.sql", query, schema, macros_of(repository.macros))
    ends = tuple(Column(view.name, feature) for feature in features)
    edges = [
        Edge(Column(owners[before.name], before.name), end, by)
        for end in ends
        for before, by in sorted(read.origins(end.name))
        if before.name in owners
    ]
    for owner in view.spec.views:
        wanted = dict.fromkeys(edge.before.name for edge in edges if edge.before.table == owner)
        edges += lineage_of(repository, repository.views[owner], wanted, columns).edges if wanted else ()
    return Lineage(ends, tuple(dict.fromkeys(edges)))


def _edges(read: Query, table: str, deciding: Iterable[str]) -> Iterator[Edge]:
    own = Column(table)
    rows = read.rows()
    for name in deciding:
        rows |= {before for before, _ in read.origins(name)}
    yield from (Edge(before, own, ROWS) for before in sorted(rows))
    for name in read.names:
        after = Column(table, name)
        yield Edge(own, after, ROWS)
        yield from (Edge(before, after, by) for before, by in sorted(read.origins(name)))
