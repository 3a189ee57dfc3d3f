"""`gatehouse models explain`, `search`, `compare` and `tag`: facts about versions, and differences between them."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from gatehouse.cli.output import JsonOption, StoreOption, find, open_store, print_json, print_table
from gatehouse.errors import ConfigurationError
from gatehouse.registry.comparison import CompareRequest
from gatehouse.registry.comparison import compare as compared
from gatehouse.registry.explanation import ExplainRequest, Explanation, Number
from gatehouse.registry.explanation import explain as explained
from gatehouse.registry.naming import named
from gatehouse.registry.projection import project
from gatehouse.registry.promotion import tag as tagged
from gatehouse.registry.search import SearchRequest
from gatehouse.registry.search import search as searched
from gatehouse.reports.format import number
from gatehouse.runtime.counting import counted
from gatehouse.store.objects.cache import cache_folder
from gatehouse.store.reference import Reference, references_in

_METRICS = 3


def explain(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="NAME:2 or NAME@champion.")],
    html: Annotated[Path | None, typer.Option(help="Write the page to this file.")] = None,
    svg: Annotated[Path | None, typer.Option(help="Write the picture of the lineage to this file.")] = None,
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Explain a version: which data, code, configuration, environment, seeds, parents, who and why; and its lineage."""
    from gatehouse.registry.report import explanation_page, lineage_picture

    found = explained(ExplainRequest(model=model), open_store(store))
    name = f"{found.name}:{found.version}"
    if svg is not None:
        _write(svg, lineage_picture(found.nodes, found.edges, name, alone=True))
    if as_json:
        print_json(found.model_dump(mode="json"))
        return
    page = html or cache_folder() / "pages" / "models" / f"{found.name}-{found.version}.html"
    _write(page, explanation_page(found))
    _print(found)
    typer.echo(f"\npage: {page}")


def search(
    query: Annotated[str, typer.Argument(help="E.g. roc_auc > 0.7 and stage = 'candidate' order by log_loss")] = "",
    trained_on: Annotated[
        list[str] | None,
        typer.Option(help="A reference that it was made from, such as a snapshot; also several."),
    ] = None,
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Find versions by metrics, settings, tags and lineage; the language is that of `gatehouse runs search`."""
    opened = open_store(store)
    references = tuple(str(find(opened, each)) for each in trained_on or ())
    found = searched(SearchRequest(query=query, trained_on=references), opened)
    if as_json:
        print_json([each.model_dump(mode="json") for each in found])
        return
    table = Table("version", "stage", "by", "tags", "metrics", "model", box=None, pad_edge=False)
    for each in found:
        tags = " ".join(f"{name}={value}" for name, value in each.tags.items())
        ordered = sorted(each.numbers, key=lambda one: one.name not in query)  # Numbers in the query come first.
        metrics = "  ".join(f"{one.name} {with_interval(one)}" for one in ordered[:_METRICS])
        short = Reference.parse(each.model).short
        table.add_row(*map(Text, (f"{each.name}:{each.version}", each.stage, each.by, tags, metrics, short)))
    if found:
        print_table(table)
    typer.echo(counted(len(found), "version"), err=True)


def compare(
    first: Annotated[str, typer.Argument(help="NAME:2 or NAME@champion.")],
    second: Annotated[str, typer.Argument(help="Another one.")],
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Compare two versions: every number, and what changed in data, features, configuration, code and environment."""
    found = compared(CompareRequest(first=first, second=second), open_store(store))
    if as_json:
        print_json(found.model_dump(mode="json"))
        return
    table = Table("on the test part", found.first, found.second, box=None, pad_edge=False)
    for pair in found.numbers:
        table.add_row(
            Text(pair.name, style="dim"), *(with_interval(each) if each else "" for each in (pair.first, pair.second))
        )
    print_table(table)
    if found.numbers and not found.same_test:
        typer.echo("These numbers are of different test rows: they do not say which model is better.")
    typer.echo()
    table = Table(
        "what changed" if found.changes else "nothing changed", "", found.first, found.second, box=None, pad_edge=False
    )
    for each in found.changes:
        table.add_row(
            Text(each.part, style="dim"), Text(each.name), *(Text(_short(value)) for value in (each.first, each.second))
        )
    print_table(table)


def tag(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="NAME:2 or NAME@champion.")],
    tags: Annotated[list[str], typer.Argument(metavar="NAME=VALUE...", help="What to note; NAME= removes it.")],
    store: StoreOption = "",
) -> None:
    """Note something about a version, by which `gatehouse models search` finds it."""
    opened = open_store(store)
    found = named(opened, model)
    if wrong := [each for each in tags if "=" not in each]:
        raise ConfigurationError(f"tag: expected NAME=VALUE, found {', '.join(wrong)}.")
    given = dict(each.split("=", 1) for each in tags)
    state = tagged(opened, found.ledger.model_name, found.version.version, given)
    project(opened, found.ledger.model_name, state, "tag:projection")
    held = state.version(found.version.version)
    noted = " ".join(f"{name}={value}" for name, value in held.tags) if held else ""
    typer.echo(f"{found.ledger.model_name}:{found.version.version} {noted or 'has no tags'}")


def _short(value: str) -> str:
    """A value for a table, with digests shortened."""
    if references_in([value]):
        return Reference.parse(value).short
    return f"{value[:12]}…" if len(value) == 64 and " " not in value else value


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
    """A number, with its interval if there is one."""
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
