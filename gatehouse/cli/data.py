"""`gatehouse data`: shows, queries, verifies, compares, copies and removes what a store holds; `gatehouse report`."""

import csv
import sys
import webbrowser
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from gatehouse.api import data
from gatehouse.api.records import Size
from gatehouse.cli.output import (
    JsonOption,
    ReasonOption,
    StoreOption,
    echo,
    print_json,
    show,
    size,
    written,
)
from gatehouse.cli.projects import attempt
from gatehouse.configuration.yaml_lines import nearest
from gatehouse.errors import ConfigurationError
from gatehouse.project.place import find, open_store
from gatehouse.reports.contents import rendered
from gatehouse.reports.format import shortened
from gatehouse.runtime.plural import counted
from gatehouse.store import deprecation, eraser
from gatehouse.store.age import DAY, DAYS
from gatehouse.store.collection import collect
from gatehouse.store.eraser import plan_erasure
from gatehouse.store.erasure import erasure_of
from gatehouse.store.store import ArtifactStore
from gatehouse.store.transfer import Pulled, export, pull

app = typer.Typer(no_args_is_help=True)
ReferenceArgument = Annotated[str, typer.Argument(help="A reference; its digest may be cut where it stays unique.")]
ByOption = Annotated[str, typer.Option(help="Who asks; default: the user of this machine.")]
_LONGEST_CELL, _SHOWN = 60, 40


@app.command("list")
def list_references(
    kind: Annotated[str, typer.Argument(help="Only this kind, e.g. datasets.")] = "",
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """List the references of a store, with the state of each. Digests are cut where they stay unique."""
    opened = open_store(store)
    listed = data.artifacts(opened, kind)
    kinds = sorted({reference.kind for reference in opened.references()}) if kind and not listed else []
    of_kind = f" of kind {kind}{nearest(kind, kinds)}" if kind else ""
    show(listed, as_json, empty=f"{opened.address} holds no references{of_kind}.")
    problems = [artifact.problem for artifact in listed if artifact.problem]
    for problem in problems:
        typer.echo(f"error: {problem}", err=True)
    raise typer.Exit(1 if problems else 0)


@app.command("show")
def show_artifact(
    reference: ReferenceArgument,
    store: StoreOption = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print the manifest itself, as canonical JSON.")] = False,
) -> None:
    """Show what an artifact is, what it was made from, and its state."""
    opened = open_store(store)
    artifact = find(opened, reference)
    manifest = opened.manifest(artifact)
    if as_json:
        typer.echo(manifest.to_json())
        return
    files = [{"path": file.path, "bytes": Size(file.bytes), "rows": file.rows} for file in manifest.files]
    show(
        {"reference": artifact, "rows": manifest.rows, "bytes": Size(sum(file.bytes for file in manifest.files))}
        | {"notes": data.notes(opened, artifact), "made from": dict(sorted(manifest.derived_from.items()))}
        | {"columns": {column.name: column.type for column in manifest.columns}, "files": files}
        | {"configuration": manifest.configuration, "details": manifest.details}
    )


@app.command()
def verify(
    reference: Annotated[str, typer.Argument(help="One reference and all it was derived from; default: all.")] = "",
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Verify every byte and every record, and report everything that is wrong; exit code 1 if anything is.

    Artifacts that were erased on request are reported as erased; that is no error.
    """
    opened = open_store(store)
    results = data.verify(opened, find(opened, reference) if reference else None)
    states = Counter(result.state for result in results)
    show(results, as_json, view=[result for result in results if result.problems])
    if not as_json:
        counts = [f"{states[state]} {state}" for state in ("erased", "broken") if states[state]]
        typer.echo(", ".join([f"{states['intact']} references verified in {opened.address}", *counts]))
    raise typer.Exit(1 if states["broken"] else 0)


@app.command("pull")
def pull_reference(
    reference: ReferenceArgument,
    directory: Annotated[Path | None, typer.Argument(help="Copy only this artifact's files here.")] = None,
    to: Annotated[str, typer.Option(help="Copy the artifact, and all it was derived from, to this store.")] = "",
    store: StoreOption = "",
) -> None:
    """Copy an artifact: with --to into another store, with its lineage; with DIRECTORY as plain files.

    Bytes are verified on both sides. Files that are there already are not copied again, so an interrupted pull goes on.
    """
    opened = open_store(store)
    artifact = find(opened, reference)
    if bool(to) == (directory is not None):
        raise ConfigurationError("pull: expected either a directory or --to STORE, found both or neither.")
    if directory is not None:
        export(opened, artifact, directory)
        typer.echo(f"{directory}: {', '.join(entry.path for entry in opened.manifest(artifact).files) or 'no files'}")
        return
    target = ArtifactStore.open(to)
    if target.address == opened.address:
        raise ConfigurationError(f"--to: expected another store than {opened.address}.")
    styles = {"copied": "green", "present": "dim", "erased": "red", "unerased": "red"}

    def print_line(item: Pulled) -> None:
        echo((f"{item.state:<8}", styles[item.state]), f"{size(item.bytes):>13}  {item.reference}")

    pulled = pull(opened, artifact, target, print_line)
    copied = [item for item in pulled if item.state == "copied"]
    typer.echo(f"{len(copied)} of {len(pulled)} artifacts copied ({size(sum(item.bytes for item in copied))})")
    if any(item.state == "unerased" for item in pulled):
        typer.echo(f"Some were erased in {opened.address}, and are still in {target.address}: erase them there too.")
    typer.echo(target.address_of(artifact))


@app.command()
def diff(
    before: Annotated[str, typer.Argument(help="The older snapshot or table.")],
    after: Annotated[str, typer.Argument(help="The newer one.")],
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Show what changed between two snapshots or tables: tables, columns, and how many rows only one of them has.

    Rows are compared in the columns that both have with one type; a value of a sensitive column equals every other.
    """
    opened = open_store(store)
    show(data.compare(opened, find(opened, before), find(opened, after)), as_json)


@app.command()
def query(
    sql: Annotated[str, typer.Argument(help="A query, e.g. 'select count(*) from \"datasets/flights\"'.")],
    on: Annotated[list[str] | None, typer.Option(help="Tables, or snapshots, to be named without quotes.")] = None,
    rows: Annotated[int, typer.Option(min=0, help="Most rows to print; 0 for all.")] = 50,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print all rows as CSV.")] = False,
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Run SQL (DuckDB's) over artifacts. Values of sensitive columns are `***` wherever they stand.

    Artifacts stand in double quotes, in full or cut where unique: "datasets/flights", "splits/flights/sha256-3f9c", and
    a table of a snapshot as "snapshots/nyc".flights.
    """
    result = data.query(open_store(store), sql, on or (), 0 if as_csv or as_json else rows)
    if result.hidden and not any("***" in row for row in result.values):
        typer.echo(f"{', '.join(result.hidden)}: sensitive, so conditions and counts see `***` in each row.", err=True)
    if as_csv:
        csv.writer(sys.stdout, lineterminator="\n").writerows([result.columns, *result.values])
        return
    show(result.to_json(), as_json, view=_cells(result, rows))
    if rows and not as_json and len(result.values) > rows:
        typer.echo(f"More than {rows:,} rows: --rows 0 prints all, --csv and --json too.", err=True)


@app.command()
def head(
    reference: Annotated[str, typer.Argument(help="A table, or an artifact made of tables, such as a snapshot.")],
    rows: Annotated[int, typer.Option("--rows", "-n", min=1, help="How many rows of each table.")] = 10,
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Show the first rows of a table, or of each table of a snapshot. Values of sensitive columns are `***`."""
    opened = open_store(store)
    tables = data.head(opened, find(opened, reference), rows)
    if as_json:
        print_json({name: result.to_json() for name, result in tables.items()})
        return
    for name, result in tables.items():
        echo((name, "bold"), f"  {counted(result.total, 'row')}")
        show(_cells(result))


def _cells(result: data.Rows, most: int = 0) -> list[dict[str, str]]:
    """Rows with their values as they are, cut where they are long."""
    rows = result.values[: most or None]
    texts = (["" if value is None else shortened(str(value), _LONGEST_CELL) for value in row] for row in rows)
    return [dict(zip(result.columns, row, strict=True)) for row in texts]


@app.command("infer-contract")
def infer(
    snapshot: Annotated[str, typer.Argument(help="A snapshot; its digest may be cut where it stays unique.")],
    out: Annotated[Path | None, typer.Option(help="Write it to this file; default: print it.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
    store: StoreOption = "",
) -> None:
    """Write a data contract from what a snapshot holds, each rule beside what was seen.

    The snapshot itself keeps every rule. It is a start: read it, set owners, and loosen or tighten it.
    """
    from gatehouse.data.validation.inference import infer_contract  # Imports DuckDB.

    if out is not None and out.exists() and not force:
        raise ConfigurationError(f"--out: {out} exists: give another file, or --force to write over it.")
    opened = open_store(store)
    text = infer_contract(opened, find(opened, snapshot))
    typer.echo(text if out is None else written(out, text), nl=out is not None)


app.command("try")(attempt)


def report(
    reference: ReferenceArgument,
    store: StoreOption = "",
    open_page: Annotated[bool, typer.Option("--open/--no-open", help="Open it in a browser.")] = True,
) -> None:
    """Draw the page of an artifact, print where it is, and open it."""
    opened = open_store(store)
    page = rendered(opened, find(opened, reference))
    typer.echo(str(page))
    if open_page:
        webbrowser.open(page.resolve().as_uri())


@app.command("rejected")
def rejected(
    reference: Annotated[
        str, typer.Argument(help="A snapshot, a dataset, or the rejected rows of one; default: all of the store.")
    ] = "",
    examples: Annotated[int, typer.Option(min=0, help="How many examples of each reason.")] = 3,
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Show the rows that did not fit, by reason, with examples; no value of a table with sensitive columns."""
    opened = open_store(store)
    tables = data.rejected(opened, find(opened, reference) if reference else None, examples)
    if as_json or not tables:
        show(tables, as_json, empty=f"No row of {reference or opened.address} was rejected.")
    else:
        for table in tables:
            show(table)


@app.command("deprecate")
def deprecate(
    reference: Annotated[str, typer.Argument(help="What should not be used any more.")],
    reason: ReasonOption,
    successor: Annotated[str, typer.Option(help="The reference to use instead.")] = "",
    by: ByOption = "",
    store: StoreOption = "",
) -> None:
    """Mark an artifact as deprecated: readers are warned, with the reason and the successor."""
    opened = open_store(store)
    artifact = find(opened, reference)
    marker = deprecation.deprecate(opened.objects, artifact, reason, find(opened, successor) if successor else "", by)
    typer.echo(marker.explain(artifact))


@app.command("gc")
def gc(
    delete: Annotated[bool, typer.Option("--delete/--dry-run", help="Delete what is listed, or only list it.")] = False,
    days: Annotated[float, typer.Option(min=0, help="Age from which an object goes; 0 only if nothing runs.")] = DAYS,
    deprecated: Annotated[
        bool, typer.Option("--deprecated", help="Also deprecated artifacts that nothing needs any more.")
    ] = False,
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Collect garbage: show what nothing needs, and with --delete remove what of it is older than --days.

    Whatever a manifest, the ledger or lineage needs, stays. What a run uses is young, so the command may run beside
    runs that take less than --days. While a manifest is broken no data is deleted, as it may need any; exit code 1 says
    so.
    """
    items = collect(open_store(store), days=days, deprecated=deprecated, dry_run=not delete)
    view = [
        {"what": item.kind, "bytes": item.bytes, "state": item.state, "days": int(item.age / DAY)}
        | {"why": item.why, "key": item.key}
        for item in items
    ]
    show(items, as_json, view=view, most=_SHOWN)
    states = Counter(item.state for item in items)
    if not as_json:
        for name in ("deleted", "found", "young", "kept", "broken"):
            if states[name]:
                total = size(sum(item.bytes for item in items if item.state == name))
                typer.echo(f"{'may go' if name == 'found' else name}: {states[name]:,} ({total})")
        if states["broken"]:
            typer.echo("While a manifest is broken, no data is deleted: restore the store from a copy.")
        if not states.keys() - {"kept", "broken"}:
            typer.echo("There is nothing to collect.")
        elif not delete:
            typer.echo(f"Nothing was changed. --delete deletes what may go: what is older than {days:g} days.")
    raise typer.Exit(1 if states["broken"] else 0)


@app.command("erase")
def erase(
    reference: Annotated[str, typer.Argument(help="The artifact whose data is to be removed.")],
    reason: ReasonOption,
    only: Annotated[bool, typer.Option("--only", help="Erase this artifact alone.")] = False,
    keep_inputs: Annotated[bool, typer.Option("--keep-inputs", help="Leave what it was made from.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    by: ByOption = "",
    store: StoreOption = "",
) -> None:
    """Remove an artifact's data for good, with an audited record. It cannot be undone.

    Its inputs, all artifacts that were derived from these, and artifacts that share their files are erased too: all are
    listed first. Manifests stay and say that the data was erased. Run it while no run uses the data. It also finishes
    erasures that were interrupted.
    """
    opened = open_store(store)
    artifact = find(opened, reference)
    plan = plan_erasure(opened, artifact, only, keep_inputs)
    if not plan.erased:
        eraser.finish(opened)
        erasure = erasure_of(opened.objects, artifact)
        typer.echo(erasure.explain(str(artifact)) if erasure else f"{artifact}: nothing is left to erase.")
        return
    show(
        {"to be erased": plan.erased, "still hold data of it": plan.holders}
        | {"files to be removed": len(plan.blobs), "in all": Size(sum(plan.blobs.values()))}
    )
    if not yes and not sys.stdin.isatty():
        raise ConfigurationError("Nothing was erased: expected --yes, as there is no terminal to ask on.")
    if not yes and not typer.confirm("Erase? This cannot be undone."):
        raise typer.Exit(1)
    record = data.erase(opened, plan, reason, by, only=only, keep_inputs=keep_inputs)
    typer.echo(f"{'erased in part' if plan.holders else 'erased'}; the record is {record}.")
    if unreached := sum(item.kind == "blob" for item in collect(opened, dry_run=True)):
        typer.echo(
            f"{unreached} blobs that no manifest lists, as unfinished work leaves them, may hold the data, too: "
            "`gatehouse data gc --delete --days 0` removes them at once, when nothing runs."
        )
    typer.echo(
        "Not reached: caches of other machines, other stores that this was pulled to, versions of a versioned bucket, "
        "backups, downloads in scratch/, and the source itself. MLflow is shown no values of rows."
    )
