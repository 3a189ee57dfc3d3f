"""`gatehouse data`: shows, verifies, compares and removes the contents of a store."""

import re
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gatehouse.cli import contract, difference, first_look, query, rejected, retention, skew
from gatehouse.cli.description import description
from gatehouse.cli.output import JsonOption, StoreOption, find, open_store, print_json, print_table, size
from gatehouse.errors import ConfigurationError, ErasedArtifactError, GatehouseError, InvalidManifestError
from gatehouse.store.deprecation import Deprecation, deprecation_of, marker_of
from gatehouse.store.erasure import dependant_marker, erased_marker
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore
from gatehouse.store.transfer import Pulled, export, pull

app = typer.Typer(no_args_is_help=True, help="What a store holds: list, show, verify, compare, copy, retire, erase.")
ReferenceArgument = Annotated[str, typer.Argument(help="A reference; its digest may be cut where it stays unique.")]


@app.command("list")
def list_references(
    kind: Annotated[str, typer.Argument(help="Only this kind, e.g. datasets.")] = "",
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """List the references of a store, with the state of each. Digests are cut where they stay unique."""
    opened = open_store(store)
    if kind and not re.fullmatch("[a-z][a-z0-9-]*", kind):
        raise ConfigurationError(f"expected a kind, such as datasets, found {kind!r}.")
    rows: list[dict[str, Any]] = []
    broken: list[GatehouseError] = []
    references = list(opened.references(kind or None))
    states = _states(opened, references)
    for reference in references:
        try:
            manifest = opened.manifest(reference)
        except GatehouseError as error:
            broken.append(error)
            state = "unreadable" if isinstance(error, InvalidManifestError) else "corrupt"
            rows.append({"reference": str(reference), "state": state})
            continue
        held = sum(entry.bytes for entry in manifest.files)
        described = {"rows": manifest.rows, "files": len(manifest.files), "bytes": held, "state": states[reference]}
        rows.append({"reference": str(reference)} | described)
    if as_json:
        print_json(rows)
    elif rows:
        table = Table("reference", box=None, pad_edge=False)
        for name in ("rows", "files", "bytes"):
            table.add_column(name, justify="right")
        table.add_column("state")
        cut = Counter(each.short for each in references)
        shown = {str(each): each.short if cut[each.short] == 1 else str(each) for each in references}
        for row in rows:
            counts = [f"{row[name]:,}" if row.get(name) is not None else "" for name in ("rows", "files", "bytes")]
            table.add_row(
                shown[str(row["reference"])], *counts, Text(str(row["state"]), style=_STYLES[str(row["state"])])
            )
        print_table(table)
    else:
        of_kind = f" of kind {kind}{_meant(opened, kind)}" if kind else ""
        typer.echo(f"{opened.address} holds no references{of_kind}.", err=True)
    for problem in broken:
        typer.echo(f"error: {problem}", err=True)
    if broken:
        raise typer.Exit(1)


def _meant(store: ArtifactStore, kind: str) -> str:
    """The kind that the store holds and that is most like one that it does not; there is no list of all kinds."""
    from gatehouse.configuration.yaml_lines import nearest

    return nearest(kind, sorted({each.kind for each in store.references()}))


_STYLES = {
    "": "",
    "deprecated": "yellow",
    "not reproducible": "yellow",
    "erased": "red",
    "corrupt": "bold red",
    "unreadable": "red",
}


def _states(store: ArtifactStore, references: list[Reference]) -> dict[Reference, str]:
    """The state of each reference: erased, deprecated, not reproducible, or empty."""
    markers = [mark(each) for each in references for mark in (erased_marker, marker_of, dependant_marker)]
    found = store.objects.stats(markers)
    states = {}
    for each in references:
        if found[erased_marker(each)] is not None and store.erasures.of(each):
            states[each] = "erased"
        elif found[marker_of(each)] is not None:
            states[each] = "deprecated"
        elif found[dependant_marker(each)] is not None and store.erasures.behind(each):
            states[each] = "not reproducible"
        else:
            states[each] = ""
    return states


@app.command()
def show(
    reference: ReferenceArgument,
    store: StoreOption = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print the manifest itself, as canonical JSON.")] = False,
) -> None:
    """Show what an artifact is, what it was made from, and its state."""
    opened = open_store(store)
    found = find(opened, reference)
    manifest = opened.manifest(found)
    if as_json:
        typer.echo(manifest.to_json())
        return
    console = Console(soft_wrap=True, highlight=False, markup=False)
    console.print(str(found), style="bold")
    for note in _notes(opened, found):
        console.print(note, style="yellow", markup=False)
    for piece in description(opened, found, manifest):
        console.print(piece)


def _notes(store: ArtifactStore, reference: Reference) -> list[str]:
    erased, behind = store.erasures.of(reference), store.erasures.behind(reference)
    deprecated: Deprecation | None = deprecation_of(store.objects, reference)
    notes = [erased.explain(str(reference))] if erased else []
    notes += [deprecated.explain(reference)] if deprecated else []
    return notes + ([_not_reproducible(behind.key)] if behind and not erased else [])


def _not_reproducible(record: str) -> str:
    return f"It was derived from data that was erased (record {record}): it cannot be reproduced."


@app.command()
def verify(
    reference: Annotated[str, typer.Argument(help="One reference and all it was derived from; default: all.")] = "",
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Verify every byte, and report everything that is wrong; exit code 1 if anything is.

    What was erased on request is reported as erased; it is not an error.
    """
    opened = open_store(store)
    wanted = [find(opened, reference)] if reference else list(opened.references())
    results = [_verdict(opened, each) for each in _with_lineage(opened, wanted)]
    broken = [each for each in results if each["state"] == "broken"]
    if as_json:
        print_json(results)
    else:
        for each in results:
            for problem in each["problems"]:
                style = {"broken": "red", "erased": "yellow"}.get(each["state"], "yellow")
                Console(soft_wrap=True, highlight=False, markup=False).print(
                    Text(f"{each['state']}: {problem}", style=style)
                )
        counted = [f"{_count(results, state)} {state}" for state in ("erased", "not reproducible", "broken")]
        summary = ", ".join(text for text in counted if not text.startswith("0 "))
        typer.echo(
            f"{_count(results, 'intact')} references verified in {opened.address}{', ' * bool(summary)}{summary}"
        )
    if broken:
        raise typer.Exit(1)


def _with_lineage(store: ArtifactStore, wanted: list[Reference]) -> list[Reference]:
    seen: dict[Reference, None] = {}
    pending = list(reversed(wanted))
    while pending:
        current = pending.pop()
        if current in seen:
            continue
        seen[current] = None
        try:
            pending.extend(Reference.parse(each) for each in store.manifest(current).derived_from.values())
        except GatehouseError:
            continue
    return list(seen)


def _verdict(store: ArtifactStore, reference: Reference) -> dict[str, Any]:
    problems = store.problems(reference)
    behind = store.erasures.behind(reference)
    if any(not isinstance(problem, ErasedArtifactError) for problem in problems):
        state, said = "broken", [str(problem) for problem in problems]
    elif problems:
        state, said = "erased", [str(problem) for problem in problems]
    elif behind:
        state, said = "not reproducible", [f"{reference}: {_not_reproducible(behind.key)}"]
    else:
        state, said = "intact", []
    return {"reference": str(reference), "state": state, "problems": said}


def _count(results: list[dict[str, Any]], state: str) -> int:
    return sum(each["state"] == state for each in results)


@app.command("pull")
def pull_reference(
    reference: ReferenceArgument,
    directory: Annotated[
        Path | None, typer.Argument(help="Copy only this artifact's files to this directory, under their paths.")
    ] = None,
    to: Annotated[str, typer.Option(help="Copy the artifact, and all it was derived from, to this store.")] = "",
    store: StoreOption = "",
) -> None:
    """Copy an artifact: with --to into another store, with its lineage; with DIRECTORY as plain files.

    Bytes are verified on both sides. What is there already is not copied again, so an interrupted pull goes on.
    """
    opened = open_store(store)
    found = find(opened, reference)
    if bool(to) == (directory is not None):
        raise ConfigurationError("pull: expected either a directory or --to STORE, found both or neither.")
    if directory is not None:
        _export(opened, found, directory)
        return
    target = ArtifactStore.open(to)
    if target.address == opened.address:
        raise ConfigurationError(f"--to: expected another store than {opened.address}.")
    done = pull(opened, found, target, _tell)
    copied = [each for each in done if each.state == "copied"]
    typer.echo(f"{len(copied)} of {len(done)} artifacts copied ({size(sum(each.bytes for each in copied))})")
    typer.echo(target.address_of(found))


def _tell(pulled: Pulled) -> None:
    style = {"copied": "green", "present": "dim", "erased": "red"}[pulled.state]
    line = Text.assemble((f"{pulled.state:<8}", style), f"{size(pulled.bytes):>13}  {pulled.reference}")
    Console(soft_wrap=True, highlight=False, markup=False).print(line)


def _export(store: ArtifactStore, reference: Reference, directory: Path) -> None:
    export(store, reference, directory)
    typer.echo(f"{directory}: {', '.join(each.path for each in store.manifest(reference).files) or 'no files'}")
    parts = store.manifest(reference).derived_from
    if parts and not store.manifest(reference).columns:
        typer.echo("It was made from these, which are not in it; pull each that is wanted:")
        for role, each in parts.items():
            typer.echo(f"  {role}: {each}")


app.command("try")(first_look.attempt)
app.command("head")(query.head)
app.command("query")(query.query)
app.command("diff")(difference.diff)
app.command("rejected")(rejected.rejected)
app.command("deprecate")(retention.deprecate)
app.command("gc")(retention.collect)
app.command("erase")(retention.erase)
app.command("lift")(retention.lift)
app.command("skew")(skew.skew)
app.command("infer-contract")(contract.infer)
app.command("contract-schema")(contract.schema)
