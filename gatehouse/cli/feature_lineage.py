"""`gatehouse features lineage`: the source columns of a feature, as text or JSON."""

from itertools import groupby
from typing import Annotated

import typer
from rich.console import Console

from gatehouse.cli.feature_project import FeatureProject, ProjectOption, available, open_features, store_if_there
from gatehouse.cli.output import JsonOption, StoreBesideProjectOption, print_json
from gatehouse.errors import ConfigurationError
from gatehouse.features.definitions.repository import OnDemand, View
from gatehouse.features.lineage import lineage_of


def lineage(
    name: Annotated[str, typer.Argument(metavar="FEATURE|VIEW[.FEATURE]", help="A feature, or all those of a view.")],
    project: ProjectOption = None,
    store: StoreBesideProjectOption = "",
    as_json: JsonOption = False,
) -> None:
    """Show the raw columns that a feature is computed from, and those that may decide which rows count."""
    opened = open_features(project)
    view, features = _named(opened, name)
    columns = _columns(opened, store)
    known = "on demand" if isinstance(view, OnDemand) else available(view.spec)
    sources = {f"{view.name}.{feature}": lineage_of(opened.repository, view, feature, columns) for feature in features}
    if as_json:
        listed = {
            feature: {"values": columns_of.values, "others": columns_of.others, "exact": columns_of.exact}
            for feature, columns_of in sources.items()
        }
        print_json({"known_from": known, "features": listed})
        return
    console = Console(soft_wrap=True, highlight=False, markup=False)
    for feature, columns_of in sources.items():
        console.print(f"{feature}  {view.spec.features[feature.partition('.')[2]]}", style="bold")
        title = (
            "values from"
            if columns_of.exact
            else "values from (sqlglot cannot follow this SQL: all columns of its tables)"
        )
        for heading, names in ((title, columns_of.values), ("rows may depend on", columns_of.others)):
            console.print(f"  {heading}", style="dim")
            for line in _grouped(names) or ["none"]:
                console.print(f"    {line}")
    console.print(f"\nknown from {known}")


def _named(opened: FeatureProject, name: str) -> tuple[View | OnDemand, list[str]]:
    owner, _, feature = name.partition(".")
    everything: dict[str, View | OnDemand] = {**opened.repository.views, **opened.repository.on_demand}
    if owner not in everything and not feature:
        # No two views give a feature with the same name.
        owner, feature = next(
            ((owner, name) for owner, view in everything.items() if name in view.spec.features), (owner, "")
        )
    view = opened.repository.on_demand.get(owner) or opened.view(owner, opened.repository.on_demand)
    if feature and feature not in view.spec.features:
        raise ConfigurationError(
            f"The view {owner} has no feature {feature!r}: expected one of {', '.join(view.spec.features)}."
        )
    return view, [feature] if feature else list(view.spec.features)


def _columns(opened: FeatureProject, store: str) -> dict[str, list[str]]:
    """The columns of the raw tables: from the newest snapshot, or from the contract if there is none."""
    artifacts = store_if_there(store, opened)
    history = opened.history(artifacts) if artifacts else []
    if artifacts and history:
        datasets = artifacts.manifest(history[-1].snapshot).derived_from
        return {
            table: [column.name for column in artifacts.manifest(dataset).columns]
            for table, dataset in datasets.items()
        }
    from gatehouse.data.validation.contract import CONTRACT_FILE, published_contract

    contract = published_contract(opened.project.contract.files[CONTRACT_FILE].decode())
    return {name: list(table.columns) for name, table in contract.tables.items()}


def _grouped(names: tuple[str, ...]) -> list[str]:
    """One text per table: `raw.flights: carrier, dest`."""
    tables = groupby((name.rpartition(".") for name in names), key=lambda parts: parts[0])
    return [f"{table}: {', '.join(parts[2] for parts in group)}" for table, group in tables]
