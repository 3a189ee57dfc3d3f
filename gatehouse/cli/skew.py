"""`gatehouse data skew`: logged serving features against the training set that a model learned from."""

import shutil
from typing import Annotated

import typer

from gatehouse.cli.output import StoreOption, find, open_store
from gatehouse.data.validation.spec import SkewSpec


def skew(
    training_set: Annotated[str, typer.Argument(help="The training set.")],
    serving: Annotated[str, typer.Argument(help="The dataset with the logged features, of the same column names.")],
    store: StoreOption = "",
    psi: Annotated[float, typer.Option(min=1e-9, help="Greatest population stability index of a feature.")] = 0.2,
    ignore: Annotated[list[str] | None, typer.Option(help="A column that is not compared; may be repeated.")] = None,
    sensitive: Annotated[
        list[str] | None, typer.Option(help="A column of which no value may be kept; may be repeated.")
    ] = None,
    report: Annotated[str, typer.Option(help="Write the HTML report here.")] = "",
) -> None:
    """Compare what a model is asked about with what it was trained on; ends with 1 where they differ too much."""
    from gatehouse.data.validation.skew.report import described
    from gatehouse.data.validation.skew.stage import SkewRequest
    from gatehouse.data.validation.skew.stage import skew as compare
    from gatehouse.reports.rendering import rendered

    opened = open_store(store)
    request = SkewRequest(
        training_set=str(find(opened, training_set)),
        serving=str(find(opened, serving)),
        spec=SkewSpec(psi=psi, ignore=tuple(ignore or ()), sensitive=tuple(sensitive or ())),
    )
    result = compare(request, opened)
    typer.echo(described(result, opened))
    typer.echo(opened.address_of(result.skew))
    if report:
        shutil.copyfile(rendered(opened, result.skew), report)
    raise typer.Exit(0 if result.verdict == "pass" else 1)
