"""`gatehouse features lineage`: the source columns of a feature, as text, JSON and a picture."""

from itertools import groupby
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from gatehouse.cli.feature_project import FeatureProject, ProjectOption, available, open_features, store_if_there
from gatehouse.cli.output import JsonOption, StoreBesideProjectOption, print_json
from gatehouse.errors import ConfigurationError
from gatehouse.features.definitions.repository import OnDemand, View
from gatehouse.features.lineage.columns import lineage_of, lineage_on_demand
from gatehouse.features.lineage.graph import ROWS, VALUE, Column, Lineage
from gatehouse.features.lineage.picture import lineage_svg

_WIDTH = 400  # Wide enough that no name is cut, so that names can be copied.


def lineage(
    name: Annotated[str, typer.Argument(metavar="FEATURE|VIEW[.FEATURE]", help="A feature, or all those of a view.")],
    svg: Annotated[Path | None, typer.Option(help="Write the picture to this file.")] = None,
    project: ProjectOption = None,
    store: StoreBesideProjectOption = "",
    as_json: JsonOption = False,
) -> None:
    """Follow a feature through views and staging queries down to the columns of the raw tables."""
    opened = open_features(project)
    view, features = _named(opened, name)
    columns = _columns(opened, store)
    if isinstance(view, OnDemand):
        found, known = lineage_on_demand(opened.repository, view, features, columns), "on demand"
    else:
        found, known = lineage_of(opened.repository, view, features, columns), available(view.spec)
    if svg is not None:
        try:
            svg.parent.mkdir(parents=True, exist_ok=True)
            svg.write_text(lineage_svg(found, name, view.spec.description, f"Known from: {known}."))
        except OSError as error:
            raise ConfigurationError(f"--svg: {svg} cannot be written: {error.strerror}. Name another file.") from error
    if as_json:
        edges = [{"from": str(edge.before), "to": str(edge.after), "by": edge.by} for edge in found.edges]
        sources = [{"column": str(column), "by": by} for column, by in found.sources()]
        features = list(map(str, found.features))
        print_json({"features": features, "known_from": known, "sources": sources, "edges": edges})
        return
    _print(Console(soft_wrap=True, highlight=False, markup=False), view, found, known)
    if svg is not None:
        typer.echo(f"\n{svg}")


def _named(opened: FeatureProject, name: str) -> tuple[View | OnDemand, list[str]]:
    owner, _, feature = name.partition(".")
    everything: dict[str, View | OnDemand] = {**opened.repository.views, **opened.repository.on_demand}
    if owner not in everything and not feature:
        # No two views give a feature with the same name.
        owner, feature = next(
            ((view, name) for view, one in everything.items() if name in one.spec.features), (owner, "")
        )
    view = opened.repository.on_demand.get(owner) or opened.view(owner, opened.repository.on_demand)
    if feature and feature not in view.spec.features:
        raise ConfigurationError(
            f"The view {owner} has no feature {feature!r}: expected one of {', '.join(view.spec.features)}."
        )
    return view, [feature] if feature else list(view.spec.features)


def _columns(opened: FeatureProject, store: str) -> dict[str, list[str]]:
    """The columns of the raw tables: from the newest snapshot, or from the contract if there is none."""
    found = store_if_there(store, opened)
    history = opened.history(found) if found else []
    if history:
        return history[-1].columns()
    from gatehouse.data.validation.contract import CONTRACT_FILE, published_contract

    contract = published_contract(opened.project.contract.files[CONTRACT_FILE].decode())
    return {name: list(table.columns) for name, table in contract.tables.items()}


def _print(console: Console, view: View | OnDemand, found: Lineage, known: str) -> None:
    for feature in found.features:
        kind = view.spec.features[feature.name]
        tree = Tree(Text.assemble((str(feature), "bold"), (f"  {kind}", "dim")))
        _grow(tree, found, feature, set())
        Console(width=_WIDTH, highlight=False, markup=False).print(tree, soft_wrap=True)
    sources = found.sources()
    for title, by in (("\nvalues from", VALUE), ("\nrows decided by", ROWS)):
        console.print(title, style="bold")
        columns = [column for column, kind in sources if kind == by]
        for line in _grouped(columns) or ["none: it counts rows" if by == VALUE else "none"]:
            console.print(f"  {line}")
    console.print("\nknown from", style="bold")
    console.print(f"  {known}")


def _grow(tree: Tree, found: Lineage, column: Column, shown: set[Column]) -> None:
    """Add what a column is computed from; columns that were shown already are not followed again."""
    for before, by in found.before(column):
        if by != VALUE:
            continue
        again = before in shown and any(kind == VALUE for _, kind in found.before(before))
        branch = tree.add(Text.assemble(str(before), (" (as above)" if again else "", "dim")))
        if before not in shown:
            shown.add(before)
            _grow(branch, found, before, shown)
    rows = [before for before, by in found.before(column) if by == ROWS and before.name]
    if rows:
        tree.add(Text(f"rows: {'; '.join(_grouped(rows))}", style="dim"))


def _grouped(columns: list[Column]) -> list[str]:
    """One text per table: `raw.flights: carrier, dest`."""
    tables = groupby(sorted(columns), key=lambda column: column.table)
    return [f"{table}: {', '.join(column.name for column in group)}" for table, group in tables]
