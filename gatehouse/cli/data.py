"""`gatehouse data`: shows, queries, verifies, compares, copies and removes what a store holds; `gatehouse report`."""

import csv
import json
import re
import sys
import time
import webbrowser
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gatehouse.cli import first_look
from gatehouse.cli.output import (
    JsonOption,
    StoreOption,
    print_facts,
    print_json,
    print_rows,
    print_table,
    seconds_of,
    size,
)
from gatehouse.configuration.yaml_lines import nearest
from gatehouse.data.snapshot.deliveries import delivered_tables
from gatehouse.data.snapshot.report import KIND, groups_of, rejected_of
from gatehouse.data.validation.sensitivity import sensitive_columns
from gatehouse.data.validation.skew_stage import SkewSpec
from gatehouse.errors import ConfigurationError, ErasedArtifactError, GatehouseError, InvalidManifestError, StoreError
from gatehouse.project.place import find, open_store
from gatehouse.reports.contents import rendered
from gatehouse.runtime.plural import counted
from gatehouse.store import deprecation, eraser
from gatehouse.store.collection import Collection, Collector
from gatehouse.store.database import quoted
from gatehouse.store.deprecation import deprecation_of, marker_of
from gatehouse.store.eraser import ErasurePlan, plan_erasure, unlisted_blobs
from gatehouse.store.erasure import dependant_marker, erased_marker
from gatehouse.store.objects.base import side_by_side
from gatehouse.store.querying import SOURCE, queried, tables_in
from gatehouse.store.records import read_record
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore
from gatehouse.store.transfer import Pulled, export, pull

_RECORDS = ("memo", "registry", "provenance", "runs", "measurements", "erasures")
app = typer.Typer(no_args_is_help=True, help="What a store holds: list, show, verify, compare, copy, retire, erase.")
ReferenceArgument = Annotated[str, typer.Argument(help="A reference; its digest may be cut where it stays unique.")]
_STYLES = {
    "": "",
    "deprecated": "yellow",
    "not reproducible": "yellow",
    "erased": "red",
    "corrupt": "bold red",
    "unreadable": "red",
}
_MOST_FILES, _LONGEST_CELL = 20, 60
_REFERENCE = re.compile(r'"([a-z][a-z-]*/[^"]+)"')


def _console() -> Console:
    return Console(soft_wrap=True, highlight=False, markup=False)


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
    markers = opened.objects.stats(
        [mark(reference) for reference in references for mark in (erased_marker, marker_of, dependant_marker)]
    )
    for reference in references:
        row: dict[str, Any] = {"reference": str(reference)}
        try:
            manifest = opened.manifest(reference)
            row |= {"rows": manifest.rows, "files": len(manifest.files)}
            row |= {"bytes": sum(entry.bytes for entry in manifest.files), "state": ""}
            if markers[erased_marker(reference)] is not None and opened.erasures.of(reference):
                row["state"] = "erased"
            elif markers[marker_of(reference)] is not None:
                row["state"] = "deprecated"
            elif markers[dependant_marker(reference)] is not None and opened.erasures.behind(reference):
                row["state"] = "not reproducible"
        except GatehouseError as error:
            broken.append(error)
            row["state"] = "unreadable" if isinstance(error, InvalidManifestError) else "corrupt"
        rows.append(row)
    if as_json:
        print_json(rows)
    elif rows:
        table = Table("reference", box=None, pad_edge=False)
        for name in ("rows", "files", "bytes"):
            table.add_column(name, justify="right")
        table.add_column("state")
        shorts = Counter(reference.short for reference in references)
        for reference, row in zip(references, rows, strict=True):
            counts = [f"{row[name]:,}" if row.get(name) is not None else "" for name in ("rows", "files", "bytes")]
            shown = reference.short if shorts[reference.short] == 1 else str(reference)
            table.add_row(shown, *counts, Text(row["state"], style=_STYLES[row["state"]]))
        print_table(table)
    else:
        kinds = sorted({reference.kind for reference in opened.references()}) if kind else []
        of_kind = f" of kind {kind}{nearest(kind, kinds)}" if kind else ""
        typer.echo(f"{opened.address} holds no references{of_kind}.", err=True)
    for problem in broken:
        typer.echo(f"error: {problem}", err=True)
    if broken:
        raise typer.Exit(1)


@app.command()
def show(
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
    console = _console()
    console.print(str(artifact), style="bold")
    erased, behind = opened.erasures.of(artifact), opened.erasures.behind(artifact)
    if erased:
        console.print(erased.explain(str(artifact)), style="yellow")
    if deprecated := deprecation_of(opened.objects, artifact):
        console.print(deprecated.explain(artifact), style="yellow")
    if behind and not erased:
        console.print(_not_reproducible(behind.key), style="yellow")
    facts = [counted(manifest.rows, "row")] if manifest.rows is not None else []
    facts += [counted(len(manifest.columns), "column")] if manifest.columns else []
    facts += [counted(len(manifest.files), "file"), size(sum(entry.bytes for entry in manifest.files))]
    console.print(", ".join(facts))
    for key in opened.objects.list(f"provenance/{artifact}"):
        record = read_record(opened.objects, key) or {}
        at = datetime.fromtimestamp(float(record["at"]), UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        run = f" in run {record['run']}" if record.get("run") else ""
        console.print(f"made by stage {record['stage']}{run}, {at}", style="dim")
        break
    shown_files = [
        (entry.path, size(entry.bytes) + (f", {counted(entry.rows, 'row')}" if entry.rows is not None else ""))
        for entry in manifest.files[:_MOST_FILES]
    ]
    if more := manifest.files[_MOST_FILES:]:
        shown_files.append(("and more", f"{len(more):,}"))
    for title, facts_of_part in (
        ("made from", sorted(manifest.derived_from.items())),
        ("columns", [(column.name, column.type) for column in manifest.columns]),
        ("files", shown_files),
    ):
        if facts_of_part:
            console.print(f"\n{title}", style="bold")
            print_facts(facts_of_part, indent="  ")
    for title, part in (("configuration", manifest.configuration), ("details", manifest.details)):
        if part:
            console.print(f"\n{title}", style="bold")
            body = json.loads(json.dumps(part))
            console.print(yaml.safe_dump(body, sort_keys=True, allow_unicode=True).rstrip())


def _not_reproducible(record: str) -> str:
    return f"It was derived from data that was erased (record {record}): it cannot be reproduced."


def _record_problem(store: ArtifactStore, key: str) -> str:
    try:
        read_record(store.objects, key)
    except GatehouseError as error:
        return str(error)
    return ""


@app.command()
def verify(
    reference: Annotated[str, typer.Argument(help="One reference and all it was derived from; default: all.")] = "",
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Verify every byte and every record, and report everything that is wrong; exit code 1 if anything is.

    What was erased on request is reported as erased; it is not an error.
    """
    opened = open_store(store)
    pending = [find(opened, reference)] if reference else list(opened.references())
    results: dict[Reference | str, dict[str, Any]] = {}
    while pending:
        artifact = pending.pop(0)
        if artifact in results:
            continue
        problems, behind = opened.problems(artifact), opened.erasures.behind(artifact)
        if any(not isinstance(problem, ErasedArtifactError) for problem in problems):
            state = "broken"
        else:
            state = "erased" if problems else "not reproducible" if behind else "intact"
        lines = [str(problem) for problem in problems]
        if behind and state == "not reproducible":
            lines = [f"{artifact}: {_not_reproducible(behind.key)}"]
        results[artifact] = {"reference": str(artifact), "state": state, "problems": lines}
        try:
            pending += [Reference.parse(parent) for parent in opened.manifest(artifact).derived_from.values()]
        except GatehouseError:
            continue  # It is broken, as its problems say.
    records = () if reference else (key for folder in _RECORDS for key in opened.objects.list(folder))
    keys = [key for key in records if key.endswith(".json")]
    for key, problem in zip(keys, side_by_side(opened.objects, partial(_record_problem, opened), keys), strict=True):
        if problem:
            results[key] = {"reference": key, "state": "broken", "problems": [problem]}
    states = Counter(result["state"] for result in results.values())
    if as_json:
        print_json([*results.values()])
    else:
        for result in results.values():
            for problem in result["problems"]:
                style = "red" if result["state"] == "broken" else "yellow"
                _console().print(Text(f"{result['state']}: {problem}", style=style))
        counts = [f"{states[state]} {state}" for state in ("erased", "not reproducible", "broken") if states[state]]
        typer.echo(", ".join([f"{states['intact']} references verified in {opened.address}", *counts]))
    if states["broken"]:
        raise typer.Exit(1)


@app.command("pull")
def pull_reference(
    reference: ReferenceArgument,
    directory: Annotated[Path | None, typer.Argument(help="Copy only this artifact's files here.")] = None,
    to: Annotated[str, typer.Option(help="Copy the artifact, and all it was derived from, to this store.")] = "",
    store: StoreOption = "",
) -> None:
    """Copy an artifact: with --to into another store, with its lineage; with DIRECTORY as plain files.

    Bytes are verified on both sides. What is there already is not copied again, so an interrupted pull goes on.
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

    def print_line(pulled: Pulled) -> None:
        style = {"copied": "green", "present": "dim", "erased": "red"}[pulled.state]
        line = Text.assemble((f"{pulled.state:<8}", style), f"{size(pulled.bytes):>13}  {pulled.reference}")
        _console().print(line)

    pulled = pull(opened, artifact, target, print_line)
    copied = [item for item in pulled if item.state == "copied"]
    typer.echo(f"{len(copied)} of {len(pulled)} artifacts copied ({size(sum(item.bytes for item in copied))})")
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
    sides = {"before": find(opened, before), "after": find(opened, after)}
    tables = {side: tables_in(opened, artifact) for side, artifact in sides.items()}
    changes = []
    with queried(opened, sides, {}, partial(sensitive_columns, opened)) as connection:
        for name in dict.fromkeys([*tables["before"], *tables["after"]]):
            old, new = tables["before"].get(name), tables["after"].get(name)
            types = [{column.name: column.type for column in table.columns} if table else {} for table in (old, new)]
            columns = [column for column, kind in types[0].items() if types[1].get(column) == kind]
            change: dict[str, Any] = {"table": name or sides["after"].name}
            change["rows"] = [table.rows if table else None for table in (old, new)]
            change["columns"] = {
                column: [kinds.get(column) for kinds in types]
                for column in dict.fromkeys([*types[0], *types[1]])
                if types[0].get(column) != types[1].get(column)
            }
            if old and new and columns:
                cells = ", ".join(map(quoted, columns))
                rows = [f"SELECT {cells} FROM {_view(side, name)}" for side in sides]
                for word, first, second in (("removed", *rows), ("added", *reversed(rows))):
                    count = f"SELECT count(*) FROM ({first} EXCEPT ALL {second})"
                    (change[word],) = connection.execute(count).fetchall()[0]
            changes.append(change)
    if as_json:
        print_json(changes)
        return
    console = _console()
    console.print(f"- {sides['before']}\n+ {sides['after']}")
    for change in changes:
        old_rows, new_rows = ("no table" if rows is None else counted(rows, "row") for rows in change["rows"])
        line = f"{change['table']}: {old_rows} → {new_rows}"
        if "added" in change:
            line += f", {change['added']:,} added, {change['removed']:,} removed"
        console.print(line)
        for column, (old_type, new_type) in change["columns"].items():
            console.print(f"  {column}: {old_type or 'none'} → {new_type or 'none'}", style="yellow")


def _view(schema: str, table: str) -> str:
    return f"{quoted(schema)}.{quoted(table)}" if table else quoted(schema)


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
    opened = open_store(store)
    named = {text: find(opened, text) for text in dict.fromkeys(_REFERENCE.findall(sql))}
    references = [find(opened, text) for text in on or ()]
    plain = {reference.name: reference for reference in references}
    if len(plain) < len(references):
        raise ConfigurationError("--on: two artifacts have one name. Name them in the query, in double quotes.")
    columns, values = _fetched(opened, named, plain, sql, 0 if as_csv or as_json else rows)
    if as_json:
        print_json([dict(zip(columns, row, strict=True)) for row in values])
    elif as_csv:
        csv.writer(sys.stdout, lineterminator="\n").writerows([columns, *values])
    else:
        _print_rows(columns, values[: rows or None])
        if rows and len(values) > rows:
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
    artifact = find(opened, reference)
    delivered = delivered_tables(opened, artifact) if artifact.kind == "snapshots" else {}
    bodies = {}
    for name, table in tables_in(opened, artifact).items():
        columns = delivered[name].columns if name in delivered else [column.name for column in table.columns]
        sql = f"SELECT {', '.join(map(quoted, columns))} FROM {_view('it', name)} LIMIT {rows}"
        _, values = _fetched(opened, {"it": artifact}, {}, sql, 0)
        if as_json:
            bodies[name or artifact.name] = [dict(zip(columns, row, strict=True)) for row in values]
            continue
        _console().print(Text.assemble((name or artifact.name, "bold"), f"  {counted(table.rows, 'row')}"))
        _print_rows(columns, values)
    if as_json:
        print_json(bodies)


def _fetched(
    store: ArtifactStore, named: Mapping[str, Reference], plain: Mapping[str, Reference], sql: str, rows: int
) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Column names of a query's result, and its rows: at most one more than `rows`, or all if `rows` is 0."""
    import duckdb

    with queried(store, named, plain, partial(sensitive_columns, store)) as connection:
        try:
            statements = connection.extract_statements(sql)
            if len(statements) != 1:
                raise ConfigurationError(f"expected one query, found {len(statements)}: give each to a command.")
            result = connection.execute(statements[0])
            columns = [str(column[0]) for column in result.description or ()]
            return columns, result.fetchmany(rows + 1) if rows else result.fetchall()
        except duckdb.Error as error:
            views = "SELECT schema_name, view_name FROM duckdb_views() WHERE NOT internal"
            tables = [
                view if schema == "main" else _view(schema, view)
                for schema, view in connection.execute(views).fetchall()
                if not view.startswith(SOURCE)
            ]
            named_tables = f"Tables that it may name: {', '.join(tables)}."
            if not tables:
                named_tables = 'Name a table as "datasets/NAME"; `gatehouse data list datasets` lists them.'
            raise ConfigurationError(f"The query cannot be run: {error}\n{named_tables}") from None


def _print_rows(columns: Sequence[str], rows: Iterable[tuple[Any, ...]]) -> None:
    texts = (["" if value is None else str(value) for value in row] for row in rows)
    cut = ([text if len(text) <= _LONGEST_CELL else f"{text[: _LONGEST_CELL - 1]}…" for text in row] for row in texts)
    print_rows(columns, cut)


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
    if out is None:
        typer.echo(text, nl=False)
        return
    out.write_text(text, encoding="utf-8")
    typer.echo(out)


app.command("try")(first_look.attempt)


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
    from gatehouse.data.sources.declared import HIDDEN, NOT_SHOWN

    opened = open_store(store)
    references = rejected_of(opened, find(opened, reference)) if reference else list(opened.references(KIND))
    tables = {rows: groups_of(opened, rows, examples) for rows in references}
    if as_json:
        print_json([{"reference": str(rows), "groups": list(map(asdict, groups))} for rows, groups in tables.items()])
        return
    if not tables:
        typer.echo(f"No row of {reference or opened.address} was rejected.")
    console = Console(soft_wrap=True, highlight=False, markup=False)
    for rows, groups in tables.items():
        manifest = opened.manifest(rows)
        dataset = opened.manifest(manifest.derived_from["dataset"])
        kept = f"{counted(dataset.rows or 0, 'row')}, {manifest.rows or 0:,} rejected"
        console.print(Text.assemble((manifest.name, "bold"), f" {kept}  ", (rows.short, "dim")))
        for group in groups:
            column = f"column {group.column}: " if group.column else ""
            console.print(Text.assemble((f"{group.rows:>9,}  ", "yellow"), f"{column}{group.reason}"))
            for example in group.examples:
                value = "" if example.observed == NOT_SHOWN else f", found {example.observed}"
                row = "" if example.raw == HIDDEN else f": {example.raw}"
                console.print(Text(f"           {example.place}{value}{row}", style="dim"))
        if hidden := ", ".join(dataset.details.get("sensitive", ())):
            console.print(Text(f"           No value is shown, as columns are sensitive: {hidden}.", style="dim"))


@app.command("skew")
def skew(
    training_set: Annotated[str, typer.Argument(help="The training set.")],
    serving: Annotated[str, typer.Argument(help="The dataset with the logged features, of the same column names.")],
    store: StoreOption = "",
    psi: Annotated[float, typer.Option(min=1e-9, help="Greatest population stability index of a feature.")] = 0.2,
    ignore: Annotated[list[str] | None, typer.Option(help="A column that is not compared; may be repeated.")] = None,
    sensitive: Annotated[
        list[str] | None, typer.Option(help="A column of which no value may be kept; may be repeated.")
    ] = None,
) -> None:
    """Compare what a model is asked about with what it was trained on; ends with 1 where they differ too much."""
    from gatehouse.data.validation.skew_report import described
    from gatehouse.data.validation.skew_stage import SkewRequest
    from gatehouse.data.validation.skew_stage import skew as compare

    opened = open_store(store)
    request = SkewRequest(
        training_set=str(find(opened, training_set)),
        serving=str(find(opened, serving)),
        spec=SkewSpec(psi=psi, ignore=tuple(ignore or ()), sensitive=tuple(sensitive or ())),
    )
    result = compare(request, opened)
    typer.echo(described(result, opened))
    typer.echo(opened.address_of(result.skew))
    raise typer.Exit(0 if result.verdict == "pass" else 1)


_SHOWN = 40
_ITEM_STYLES = {"found": "", "waiting": "yellow", "deleted": "green", "kept": "dim", "broken": "red"}
ReasonOption = Annotated[str, typer.Option(help="Why; it is kept in the record.")]
ByOption = Annotated[str, typer.Option(help="Who asks; default: the user of this machine.")]


@app.command("deprecate")
def deprecate(
    reference: Annotated[str, typer.Argument(help="What should not be used any more.")],
    reason: ReasonOption,
    successor: Annotated[str, typer.Option(help="The reference to use instead.")] = "",
    by: ByOption = "",
    store: StoreOption = "",
) -> None:
    """Mark an artifact as deprecated: readers are warned, with the reason and the successor.

    GATEHOUSE_DEPRECATED=fail makes reading it an error, allow silences the warning.
    """
    opened = open_store(store)
    artifact = find(opened, reference)
    marker = deprecation.deprecate(opened.objects, artifact, reason, find(opened, successor) if successor else "", by)
    typer.echo(marker.explain(artifact))


@app.command("gc")
def collect(
    delete: Annotated[bool, typer.Option("--delete", help="Mark, and delete what was marked a grace ago.")] = False,
    grace: Annotated[str, typer.Option(help="From tombstone to deletion, e.g. 24h, 30m, 7d, 0.")] = "24h",
    deprecated: Annotated[
        bool, typer.Option("--deprecated", help="Also deprecated artifacts that nothing needs any more.")
    ] = False,
    forget: Annotated[
        bool, typer.Option("--forget", help="With --deprecated: also those that memos and run records name.")
    ] = False,
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Collect garbage: show what nothing needs, and with --delete remove it in two phases.

    Whatever a manifest, a memo, a run record, the ledger, lineage or a running writer needs, stays. The first
    `gc --delete` writes tombstones. One after the grace period deletes what is still not needed. It may run at any
    time, also beside writers. While a manifest is broken no data is deleted, as it may need any; exit code 1 says so.
    """
    if forget and not deprecated:
        raise ConfigurationError("--forget: expected together with --deprecated, found without it.")
    opened = open_store(store)
    collector = Collector(opened, Collection(deprecated, forget, seconds_of("--grace", grace)))
    items = collector.mark() if delete else collector.look()
    if delete:
        items = collector.sweep(items)
    if as_json:
        print_json([asdict(item) for item in items])
    else:
        if items:
            rows = []
            for item in items[:_SHOWN]:
                state = item.state
                if state == "waiting":
                    state += time.strftime(" until %Y-%m-%d %H:%M UTC", time.gmtime(item.due))
                style = _ITEM_STYLES[item.state]
                rows.append((item.kind, f"{item.bytes:,}", Text(state, style=style), item.why, item.key))
            print_rows(("what", "bytes", "state", "why", "key"), rows)
            if len(items) > _SHOWN:
                typer.echo(f"… and {len(items) - _SHOWN:,} more; --json prints all")
            typer.echo("")
        states = Counter(item.state for item in items)
        for name in ("deleted", "waiting", "found", "kept", "broken"):
            if states[name]:
                total = size(sum(item.bytes for item in items if item.state == name))
                typer.echo(f"{'may go' if name == 'found' else name}: {states[name]:,} ({total})")
        if states["broken"]:
            typer.echo("While a manifest is broken, no data is deleted: restore the store from a copy.")
        if not states.keys() - {"kept", "broken"}:
            typer.echo("There is nothing to collect.")
        elif not delete:
            typer.echo(
                "Nothing was changed. --delete writes tombstones, and deletes what has had one for the grace period."
            )
        elif states["waiting"]:
            typer.echo(f"Tombstones stand. Run it again after the grace period ({grace}) to delete.")
    if any(item.state == "broken" for item in items):
        raise typer.Exit(1)


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

    What it was made from, what was derived from these, and artifacts that share their files are erased too: all are
    listed first. Manifests stay and say that the data was erased. The same content is refused when it is published
    again; `gatehouse data lift` allows it.
    """
    opened = open_store(store)
    for unfinished in opened.erasures.unfinished():
        typer.echo(f"finishing {unfinished.key}, which was interrupted", err=True)
        eraser.finish(opened, unfinished)
    artifact = find(opened, reference)
    plan = plan_erasure(opened, artifact, only, keep_inputs)
    if not plan.blobs and not plan.erased:
        erasure = opened.erasures.of(artifact)
        typer.echo(erasure.explain(str(artifact)) if erasure else f"{artifact}: nothing is left to erase.")
        return
    _print_plan(plan)
    if not yes and not sys.stdin.isatty():
        raise ConfigurationError("Nothing was erased: expected --yes, as there is no terminal to ask on.")
    if not yes and not typer.confirm("Erase? This cannot be undone."):
        raise typer.Exit(1)
    record = eraser.erase(opened, plan, reason, by)
    after = plan_erasure(opened, artifact, only, keep_inputs)
    if after.erased or after.blobs or len(after.holders) > len(plan.holders):
        _print_plan(after)
        raise StoreError(f"While {artifact} was erased, the artifacts above were published. Erase it again.")
    typer.echo(f"{'erased in part' if plan.holders else 'erased'}; the record is {record.key}.")
    if unlisted := len(unlisted_blobs(opened)):
        typer.echo(
            f"{unlisted} blobs that no manifest lists, as unfinished work leaves them, may hold the data, too: "
            "`gatehouse data gc --delete` removes them after the grace period."
        )
    typer.echo(
        "Not reached: caches of other machines, other stores that this was pulled to, versions of a versioned bucket, "
        "backups, downloads in scratch/, and the source itself. MLflow is shown no values of rows."
    )


def _print_plan(plan: ErasurePlan) -> None:
    console = Console(soft_wrap=True, highlight=False, markup=False)
    sections = (
        ("to be erased:", plan.erased, "bold red"),
        ("marked as not reproducible:", plan.dependants, "yellow"),
        ("these still hold data of it:", plan.holders, "yellow"),
    )
    for title, references, style in sections:
        if references:
            console.print(Text(title, style=style), *(Text(f"  {artifact}") for artifact in references), sep="\n")
    total = sum(count for count, _ in plan.blobs.values())
    console.print(f"in all {counted(len(plan.blobs), 'file')} to be removed, {size(total)}")


@app.command("lift")
def lift(
    number: Annotated[int, typer.Argument(help="The number of the erasure's record.")],
    reason: ReasonOption,
    by: ByOption = "",
    store: StoreOption = "",
) -> None:
    """Allow the content of an erasure to be published again; what was removed stays removed."""
    erasure = eraser.lift(open_store(store), number, reason, by)
    typer.echo(f"{erasure.key} is lifted: {len(erasure.blobs)} files may be published again.")
