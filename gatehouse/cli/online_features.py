"""`gatehouse features materialize` and `skew`: writes the online store, and compares it with the offline values."""

from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from gatehouse.cli.feature_project import ProjectOption, moment, open_features, store_of
from gatehouse.cli.output import JsonOption, StoreBesideProjectOption, print_json, print_table
from gatehouse.errors import ConfigurationError

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
    artifacts = store_of(store, opened)
    tables = opened.tables(artifacts, opened.served(service, []))
    # A time after that of the tables would move the watermark past rows of later tables.
    newest = datetime.fromisoformat(tables.as_of)
    try:
        until = datetime.fromisoformat(as_of) if as_of else newest
    except ValueError as error:
        raise ConfigurationError(
            f"--as-of: expected a time such as 2013-01-31T14:00:00+00:00, found {as_of!r}."
        ) from error
    until = until if until.tzinfo else until.replace(tzinfo=UTC)
    if until > newest:
        raise ConfigurationError(
            f"--as-of: {tables.reference} was computed up to {moment(tables.as_of)}; expected a time until then, "
            f"found {moment(until.isoformat())}. `gatehouse run` computes newer tables."
        )
    request = MaterializeRequest(
        snapshot=tables.snapshot,
        feature_tables=str(tables.reference),
        definitions=str(opened.project.definitions.publish(artifacts)),
        project=opened.project.name,
        service=service or opened.project.file.features.service,
        as_of=until.isoformat(),
        max_skew=opened.project.file.features.max_skew,
        rewrite=rewrite,
    )
    result = write(request, artifacts)
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
        typer.echo(artifacts.address_of(result.report))
    raise typer.Exit(0 if result.verdict == "pass" else 1)


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
    from gatehouse.online.skew import Skew, skew_reasons, standing_skew
    from gatehouse.online.store import open_online

    opened = open_features(project)
    artifacts = store_of(store, opened)
    views = opened.served(service, [])
    newest = str(opened.tables(artifacts, views).reference)
    online = open_online(artifacts, opened.project.name, opened.repository.folder)
    results = list(standing_skew(artifacts, online, opened.project.name, views, newest))
    total = Skew(tuple(comparison for result in results for comparison in result.skew.compared))
    limit = opened.project.file.features.max_skew
    reasons = skew_reasons(total, [result.view for result in results], limit)
    reasons += [result.not_compared for result in results if result.not_compared]
    rows = [result.body() | {"newest": result.feature_tables == newest} for result in results]
    if as_json:
        print_json({"skew": total.share, "max_skew": limit, "views": rows})
    else:
        table = Table("view", "as of", box=None, pad_edge=False)
        for name in ("values compared", "differing"):
            table.add_column(name, justify="right")
        table.add_column("first that differ: key, online, offline")
        for row in rows:
            examples = "; ".join(
                f"{example['feature']} {example['key']}: {example['online']}, {example['offline']}"
                for example in row["examples"]
            )
            differing = Text(f"{row['differing']:,}", style="red" if row["differing"] else "")
            cells = [row["view"], moment(row["as_of"]), f"{row['values']:,}", differing, Text(examples, style="dim")]
            table.add_row(*cells)
        print_table(table)
        typer.echo(f"\nskew {total.share:.4%} of {total.values:,} values, {limit:.4%} allowed")
        notes = [
            *reasons,
            *(
                f"{row['view']}: {row['left_out']:,} keys with rows that are known later are left out"
                for row in rows
                if row["left_out"]
            ),
            *(
                f"{row['view']}: there are newer feature tables. `gatehouse features materialize` writes them"
                for row in rows
                if not row["newest"]
            ),
        ]
        for note in notes:
            typer.echo(f"  {note}")
    raise typer.Exit(1 if reasons else 0)
