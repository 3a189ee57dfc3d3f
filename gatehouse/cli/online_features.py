"""`gatehouse features materialize` and `skew`: writes the online store, and compares it with the offline values."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from gatehouse.cli.feature_project import ProjectOption, Tables, moment, open_features, store_of
from gatehouse.cli.output import JsonOption, StoreBesideProjectOption, print_json, print_table
from gatehouse.errors import ConfigurationError
from gatehouse.features.definitions.repository import View

ServiceOption = Annotated[str, typer.Option(help="Feature service; default: the project's.")]


def materialize(
    service: ServiceOption = "",
    as_of: Annotated[str, typer.Option(help="What was known then, ISO 8601; default: all that the tables hold.")] = "",
    rewrite: Annotated[bool, typer.Option("--rewrite", help="Write all again, also to go back in time.")] = False,
    project: ProjectOption = None,
    store: StoreBesideProjectOption = "",
    as_json: JsonOption = False,
) -> None:
    """Bring the project's online store up to its newest feature tables, and compare; ends with 1 above max_skew."""
    from gatehouse.online.stage import MaterializeRequest
    from gatehouse.online.stage import materialize as write

    opened = open_features(project)
    found = store_of(store, opened)
    tables = opened.tables(found, opened.served(service, []))
    request = MaterializeRequest(
        snapshot=tables.snapshot,
        feature_tables=str(tables.reference),
        definitions=str(opened.project.definitions.publish(found)),
        project=opened.project.name,
        service=service or opened.project.file.features.service,
        as_of=_as_of(as_of, tables).isoformat(),
        max_skew=opened.project.file.features.max_skew,
        rewrite=rewrite,
    )
    result = write(request, found)
    if as_json:
        print_json(result.model_dump())
    else:
        table = Table("view", box=None, pad_edge=False)
        table.add_column("rows that changed", justify="right")
        for view, changed in result.written.items():
            table.add_row(view, f"{changed:,}")
        print_table(table)
        typer.echo(
            f"\nas of {moment(request.as_of)}; skew {result.skew:.4%} of {result.values:,} values: {result.verdict}"
        )
        for reason in result.reasons:
            typer.echo(f"  {reason}")
        typer.echo(found.address_of(result.report))
    raise typer.Exit(0 if result.verdict == "pass" else 1)


def _as_of(text: str, tables: Tables) -> datetime:
    """The requested time; it may not be after that of the tables, or the watermark would skip rows of later tables."""
    newest = datetime.fromisoformat(tables.as_of)
    try:
        found = datetime.fromisoformat(text) if text else newest
    except ValueError as error:
        raise ConfigurationError(
            f"--as-of: expected a time such as 2013-01-31T14:00:00+00:00, found {text!r}."
        ) from error
    found = found if found.tzinfo else found.replace(tzinfo=UTC)
    if found > newest:
        raise ConfigurationError(
            f"--as-of: {tables.reference} was computed up to {moment(tables.as_of)}; expected a time until then, "
            f"found {moment(found.isoformat())}. `gatehouse run` computes newer tables."
        )
    return found


def skew(
    service: ServiceOption = "",
    project: ProjectOption = None,
    store: StoreBesideProjectOption = "",
    as_json: JsonOption = False,
) -> None:
    """Read a sample of the online store back and compare it with the offline values.

    Ends with 1 above max_skew, and where a view was not compared.

    Each view is compared at the moment up to which it was materialized, with the feature tables that were: later ones
    may say something else of their newest rows. A view that was pushed since is compared with its pushed table. Nothing
    is written.
    """
    opened = open_features(project)
    found = store_of(store, opened)
    views = opened.served(service, [])
    rows = _measured(opened.repository.folder, opened.project.name, opened.tables(found, views), views)
    cells, differing = (sum(row[name] for row in rows) for name in ("values", "differing"))
    share, limit = differing / cells if cells else 1.0, opened.project.file.features.max_skew
    unseen = [row for row in rows if row["unseen"]]
    apart = [row["not_compared"] for row in rows if row["not_compared"]]
    passed = share <= limit and (limit >= 1 or not unseen) and not apart
    if as_json:
        print_json({"skew": share, "max_skew": limit, "views": rows})
    else:
        table = Table("view", "as of", box=None, pad_edge=False)
        for name in ("values compared", "differing"):
            table.add_column(name, justify="right")
        table.add_column("first that differ: key, online, offline")
        for row in rows:
            examples = "; ".join(
                f"{one['feature']} {one['key']}: {one['online']}, {one['offline']}" for one in row["examples"]
            )
            style = "red" if row["differing"] else ""
            differ = Text(f"{row['differing']:,}", style=style)
            table.add_row(row["view"], moment(row["as_of"]), f"{row['values']:,}", differ, Text(examples, style="dim"))
        print_table(table)
        typer.echo(f"\nskew {share:.4%} of {cells:,} values, {limit:.4%} allowed")
        for row in unseen:
            typer.echo(f"  {row['view']}: no value was compared: {row['unseen']}, so it is served empty")
        for why in apart:
            typer.echo(f"  {why}")
        for row in rows:
            if row["left_out"]:
                typer.echo(f"  {row['view']}: {row['left_out']:,} keys with rows that are known later are left out")
        behind = [row["view"] for row in rows if not row["newest"]]
        if behind:
            typer.echo(
                f"  {', '.join(behind)}: there are newer feature tables. `gatehouse features materialize` writes them"
            )
    raise typer.Exit(0 if passed else 1)


def _measured(folder: Path, project: str, tables: Tables, views: list[View]) -> list[dict[str, Any]]:
    """The skew of every view, at the time up to which it was materialized or pushed."""
    from gatehouse.online.opening import open_online
    from gatehouse.online.standing import standing_skew

    online, newest = open_online(tables.store, project, folder), str(tables.reference)
    found = standing_skew(tables.store, online, project, views, newest)
    return [each.told() | {"newest": each.feature_tables == newest} for each in found]
