"""`gatehouse data try`: a first look at an undeclared CSV or Parquet file: how it is read, a contract, a report."""

import json
import re
import shlex
import webbrowser
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from gatehouse.cli.output import print_table
from gatehouse.errors import ConfigurationError
from gatehouse.project.place import LONGEST_NAME, find, store_address
from gatehouse.runtime.plural import counted
from gatehouse.store.canonical import canonical_json
from gatehouse.store.store import ArtifactStore

if TYPE_CHECKING:
    from gatehouse.data.snapshot.sniffing import Sniffed
    from gatehouse.data.snapshot.stage import SnapshotResult

_DELIMITERS = {"\t": "tab", " ": "blank"}
NullsOption = Annotated[
    list[str] | None, typer.Option("--nulls", help="A text that stands for a missing value in a CSV, such as nil.")
]
TimeZoneOption = Annotated[
    str, typer.Option("--time-zone", help="Zone of times that state none, e.g. Europe/Rome; default: UTC.")
]


@dataclass(frozen=True)
class FirstLook:
    """A snapshot of the file, the contract that it meets, as YAML, and the pages of validation and rejected rows."""

    snapshot: "SnapshotResult"
    contract: str
    pages: list[Path]


def attempt(
    file: Annotated[Path, typer.Argument(help="A CSV with a header (.csv, .tsv, .txt, also .gz), or Parquet.")],
    store: Annotated[str, typer.Option(help="Where the snapshot is written; default: .gatehouse/store.")] = "",
    nulls: NullsOption = None,
    time_zone: TimeZoneOption = "",
    open_page: Annotated[bool, typer.Option("--open/--no-open", help="Open the report in a browser.")] = True,
) -> None:
    """Look at a file: how it is read, what it holds. Takes a snapshot, validates it, and shows the report.

    `gatehouse init NAME --from FILE` writes a project that reads the file so, with the contract that it meets.
    """
    from gatehouse.data.snapshot.sniffing import sniff  # Imports DuckDB and Arrow.

    name = table_name(file)
    console = Console(soft_wrap=True, highlight=False, markup=False)
    sniffed = sniff(file, nulls or ())
    show(console, file, sniffed)
    source = declared(sniffed, file.resolve(), name, time_zone)
    look = take(source, ArtifactStore.open(store_address(store)))
    rejected = look.snapshot.rejected_rows.get(name, 0)
    rows = counted(look.snapshot.rows[name], "row") + (f", {rejected:,} rejected" if rejected else "")
    console.print(Text.assemble("\n", ("snapshot  ", "dim"), f"{look.snapshot.snapshot}  {rows}"))
    console.print(Text.assemble(("report    ", "dim"), ", ".join(map(str, look.pages))))
    show_warnings(console, look, sniffed, name)
    project = name.replace("_", "-")[:LONGEST_NAME].rstrip("-")
    console.print(f"\nto make a project of it: gatehouse init {project} --from {shlex.quote(str(file))} --label COLUMN")
    if open_page:
        webbrowser.open(look.pages[0].resolve().as_uri())


def table_name(file: Path) -> str:
    """The name of a file's table: the file's name, in characters that SQL accepts without quotes."""
    name = re.sub(r"[^a-z0-9]+", "_", file.name.split(".")[0].lower()).strip("_") or "table"
    return name if name[0].isalpha() else f"t_{name}"


def declared(sniffed: "Sniffed", file: Path, name: str, time_zone: str) -> dict[str, Any]:
    """The key `source` of a project that reads the file as a table with this name.

    A column whose name looks personal is sensitive from the beginning, because rejected rows would show it. So is then
    a text column most of whose values have another type: cells of a personal column may have moved into it.
    """
    from gatehouse.data.snapshot.sniffing import source_of
    from gatehouse.data.validation.inference import looks_personal

    changed = datetime.fromtimestamp(int(file.stat().st_mtime), UTC).replace(tzinfo=None)
    source = source_of(sniffed, file, name, changed.isoformat(sep=" "))
    if time_zone and "time_zone" not in source:
        raise ConfigurationError(f"--time-zone: expected times without a zone, found none in {file.name}.")
    source |= {"time_zone": time_zone} if time_zone else {}
    if personal := [column.name for column in sniffed.kept if looks_personal(column.name)]:
        moved = [column.name for column in sniffed.kept if column.almost]
        source["tables"][name]["sensitive"] = sorted({*personal, *moved})
    return source


def take(source: Mapping[str, Any], store: ArtifactStore) -> FirstLook:
    """Take a snapshot of a source, infer the contract that it meets, and validate the snapshot by it."""
    from gatehouse.data.snapshot.stage import SnapshotRequest, snapshot
    from gatehouse.data.sources.catalog import parse_source
    from gatehouse.data.validation.contract import CONTRACT_FILE, contract_text, parse_contract
    from gatehouse.data.validation.inference import infer_contract
    from gatehouse.data.validation.stage import ValidateRequest, validate
    from gatehouse.reports.contents import rendered

    spec = parse_source(json.loads(canonical_json(source)))  # As in a run, so that both take the same snapshot.
    taken = snapshot(SnapshotRequest(source=spec, look=True), store)
    contract = infer_contract(store, taken.snapshot)
    files = {CONTRACT_FILE: contract_text(parse_contract(contract))}
    config = store.publish("config", f"{source['name']}-contract", files)
    validation = validate(ValidateRequest(snapshot=taken.snapshot, contract=str(config)), store).validation
    pages = [rendered(store, find(store, artifact)) for artifact in (validation, *taken.rejected.values())]
    return FirstLook(taken, contract, pages)


def show(console: Console, file: Path, sniffed: "Sniffed") -> None:
    """Print how a file is read, and what a person should check about each column."""
    from gatehouse.data.validation.inference import looks_personal

    facts = [counted(sniffed.rows, "row")]
    if sniffed.delimiter:
        missing = ["empty cells" if text == "" else text for text in sniffed.missing_as]
        delimiter = _DELIMITERS.get(sniffed.delimiter, repr(sniffed.delimiter))
        facts += [f"separated by {delimiter}", sniffed.encoding.upper()]
        facts += ["decimal comma"] if sniffed.decimal == "," else []
        facts += [f"missing values are {', '.join(missing)}" if missing else "no missing values"]
    console.print(Text.assemble((file.name, "bold"), f"  {', '.join(facts)}"))
    hidden = any(looks_personal(column.name) for column in sniffed.columns)
    table = Table("column", "type", Column("missing", justify="right"), "", box=None, pad_edge=False)
    for column in sniffed.columns:
        name = column.name if column.name == column.name.strip() else repr(column.name)
        kind = "" if column.left_out else str(column.kind)
        missing_values = f"{column.missing:,}" if column.missing else ""
        misfits = ""
        if column.almost and column.misfits:
            misfits = f"text, because {column.misfits:,} values are not {column.almost}"
            misfits += "; sensitive, as personal values may have moved into it" if hidden else ""
        elif column.misfits:
            misfits = f"{counted(column.misfits, 'value')} of another type will be rejected"
        since = f"may be {column.epoch} since 1970: --time of `gatehouse init` reads it so"
        notes = (
            looks_personal(column.name) and "its name looks personal: sensitive, no value of it is shown",
            column.form and (f"written as {column.form}" if "%" in column.form else f"{column.form} since 1970"),
            column.epoch and not column.form and since,
            column.also and f"{column.also} fits as well, check which it is",
            column.naive and "no zone is stated: UTC is assumed, unless --time-zone names another",
            column.name == sniffed.event_time and "orders the rows in time",
            column.why_text and f"text, as {column.why_text}",
            misfits,
        )
        note = "; ".join(note for note in notes if note)
        if column.left_out:
            note = f"left out: {column.left_out}"
        table.add_row(name or "(no name)", kind, missing_values, note)
    print_table(table)


def show_warnings(console: Console, look: FirstLook, sniffed: "Sniffed", name: str) -> None:
    """Print the warnings of the snapshot, and how many rows are rejected or repeated, if that matters."""
    from gatehouse.data.snapshot.sniffing import USUAL_LIMIT

    lines = [f"warning: {warning}" for warning in look.snapshot.warnings]
    rejected = look.snapshot.rejected_rows.get(name, 0)
    rows = look.snapshot.rows[name] + rejected
    if not sniffed.event_time:
        lines.append(
            f"No column is read as a time: unless you name one, each row gets the file's, {sniffed.delivered}."
        )
    if rejected > USUAL_LIMIT * rows:
        lines.append(
            f"{rejected:,} of {rows:,} rows ({rejected / rows:.1%}) do not fit and are rejected, which needs "
            f"reject_limit: {sniffed.reject_limit:g} in the source. Look at them with `gatehouse data rejected`."
        )
    if sniffed.uneven:
        lines.append(f"{counted(sniffed.uneven, 'row')} with more or fewer cells than the header will be rejected.")
    if sniffed.repeated:
        lines.append(f"{counted(sniffed.repeated, 'row')} repeat an earlier row in all columns")
    for line in lines:
        console.print(Text(line, style="yellow"))
