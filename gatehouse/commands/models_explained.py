"""`gatehouse models explain`: one page on a version, in the terminal and as HTML."""

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from gatehouse.commands.output import JsonOption, StoreOption, open_store, print_json, print_table
from gatehouse.components.registry.explaining.explanation import ExplainRequest, Explanation
from gatehouse.components.registry.explaining.explanation import explain as explained
from gatehouse.components.registry.explaining.numbers import Number
from gatehouse.components.reports.format import number
from gatehouse.errors import ConfigurationError


def explain(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="NAME:2 or NAME@champion.")],
    html: Annotated[Path | None, typer.Option(help="Write the page to this file.")] = None,
    svg: Annotated[Path | None, typer.Option(help="Write the picture of the lineage to this file.")] = None,
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Explain a version: which data, code, configuration, environment, seeds, parents, who and why; and its lineage."""
    from gatehouse.components.registry.explaining.report import explanation_page, lineage_picture

    found = explained(ExplainRequest(model=model), open_store(store))
    name = f"{found.name}:{found.version}"
    if svg is not None:
        _write(svg, lineage_picture(found.nodes, found.edges, name, alone=True))
    if as_json:
        print_json(found.model_dump(mode="json"))
        return
    page = html or Path(tempfile.gettempdir()) / "gatehouse-pages" / "models" / f"{found.name}-{found.version}.html"
    _write(page, explanation_page(found))
    _print(found)
    typer.echo(f"\npage: {page}")


def _print(found: Explanation) -> None:
    typer.echo(f"{found.name}:{found.version} is {found.stage}; the gate says {found.verdict}")
    for answer in found.answers:
        typer.echo(f"\n{answer.question}")
        facts = answer.facts or (("not known", answer.missing),)
        _grid(facts)
    typer.echo("\nnumbers on the test part")
    _grid((each.name, with_interval(each)) for each in found.numbers)
    typer.echo("\nwhat happened to it")
    _grid((each.at, f"{each.what} ({each.by}){': ' if each.reason else ''}{each.reason}") for each in found.acts)


def with_interval(number_of: Number) -> str:
    """A number, and its interval where it has one."""
    bounds = "" if number_of.low is None else f" [{number(number_of.low)}, {number(number_of.high)}]"
    return f"{number(number_of.value)}{bounds}"


def _grid(rows: Iterable[tuple[str, str]]) -> None:
    grid = Table(box=None, show_header=False, pad_edge=False)
    for name, value in rows:
        grid.add_row(Text(f"  {name}", style="dim"), Text(value))
    print_table(grid)


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}. Name another file.") from error
