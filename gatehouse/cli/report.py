"""`gatehouse report`: draws the page of any artifact in the present style."""

import webbrowser
from typing import Annotated

import typer

from gatehouse.cli.output import StoreOption, find, open_store
from gatehouse.reports.rendering import rendered


def report(
    reference: Annotated[str, typer.Argument(help="An artifact, its digest may be cut.")],
    store: StoreOption = "",
    open_page: Annotated[bool, typer.Option("--open/--no-open", help="Open it in a browser.")] = True,
) -> None:
    """Draw the page of an artifact, print where it is, and open it."""
    opened = open_store(store)
    page = rendered(opened, find(opened, reference))
    typer.echo(str(page))
    if open_page:
        webbrowser.open(page.resolve().as_uri())
