"""`gatehouse data try`: a first look at an undeclared CSV or Parquet file: how it is read, a contract, a report."""

import json
import re
import shlex
import shutil
import tempfile
import webbrowser
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from gatehouse.cli.output import find, print_table
from gatehouse.cli.place import LONGEST_NAME, store_address
from gatehouse.cli.table_roles import infinite_values
from gatehouse.errors import ConfigurationError
from gatehouse.runtime.counting import counted
from gatehouse.store.canonical import canonical_json
from gatehouse.store.database import connect
from gatehouse.store.store import ArtifactStore

if TYPE_CHECKING:
    from gatehouse.data.snapshot.column_types import SniffedColumn
    from gatehouse.data.snapshot.sniffing import Sniffed
    from gatehouse.data.snapshot.stage import SnapshotResult

_SOURCE, _CONTRACT = "source.yaml", "contract.yaml"
_DELIMITERS = {"\t": "tab", " ": "blank"}


@dataclass(frozen=True)
class FirstLook:
    """The result: the snapshot, the verdict of its contract, the number of warnings with it, and the pages."""

    taken: "SnapshotResult"
    verdict: str
    warnings: int
    pages: tuple[Path, ...]


def attempt(
    file: Annotated[Path, typer.Argument(help="A CSV with a header (.csv, .tsv, .txt, also .gz), or Parquet.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder to write source.yaml and contract.yaml to; by default neither is.")
    ] = None,
    store: Annotated[str, typer.Option(help="Where the snapshot is written; default: .gatehouse/store.")] = "",
    nulls: Annotated[
        list[str] | None, typer.Option(help="A text that stands for a missing value in a CSV, such as nil.")
    ] = None,
    time_zone: Annotated[str, typer.Option(help="Zone of times that state none, e.g. Europe/Rome; default: UTC.")] = "",
    force: Annotated[bool, typer.Option("--force", help="Write over what is in the folder.")] = False,
    open_page: Annotated[bool, typer.Option("--open/--no-open", help="Open the report in a browser.")] = True,
) -> None:
    """Look at a file: how it is read, what it holds. Takes a snapshot, validates it, and shows the report.

    With --out, source.yaml and contract.yaml are written as a start to edit: the first becomes the key `source` of a
    project, the second its contract. `gatehouse init NAME --from FILE` writes a whole project.
    """
    # Needs DuckDB and Arrow, which the other commands should not import.
    from gatehouse.data.snapshot.sniffing import sniff

    name = table_name(file)
    written = [out / each for each in (_SOURCE, _CONTRACT)] if out else []
    if not force and (there := [str(each) for each in written if each.exists()]):
        raise ConfigurationError(f"{', '.join(there)} is there already: give another --out, or --force to write over.")
    console = Console(soft_wrap=True, highlight=False, markup=False)
    sniffed = sniff(file, nulls or ())
    show(console, file, sniffed)
    source = declared(sniffed, file.resolve(), name, time_zone)
    opened = ArtifactStore.open(store_address(store))
    with tempfile.TemporaryDirectory() as made:  # So that an unreadable file leaves no folder behind.
        look = taken(source, Path(made, _CONTRACT), opened, sniffed)
        if out:
            out.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(Path(made, _CONTRACT), out / _CONTRACT)
            (out / _SOURCE).write_text(_source_text(source), encoding="utf-8")
    rows = opened.manifest(look.taken.snapshot).derived_from[name]
    _tell(console, look, name, written)
    tell_rejected(console, look, name, sniffed, "the source needs", "as --out and `gatehouse init` write it")
    tell_repeated(console, sniffed.repeated)
    with connect() as connection:
        connection.read_parquet([str(path) for path in opened.paths(rows)]).create_view("rows")
        kinds = {column.name: str(column.kind) for column in sniffed.kept}
        infinite = infinite_values(lambda sql: connection.execute(sql).fetchall(), kinds)
    tell_infinite(console, infinite, "a feature or a label needs a null instead, which `gatehouse init` writes")
    project = name.replace("_", "-")[:LONGEST_NAME].rstrip("-")
    console.print(f"\nto make a project of it: gatehouse init {project} --from {shlex.quote(str(file))}")
    if open_page:
        webbrowser.open(look.pages[0].resolve().as_uri())


def table_name(file: Path) -> str:
    """The name of a file's table: the file's name, in characters that SQL accepts without quotes."""
    name = re.sub(r"[^a-z0-9]+", "_", file.name.split(".")[0].lower()).strip("_") or "table"
    return name if name[0].isalpha() else f"t_{name}"


def declared(sniffed: "Sniffed", file: Path, name: str, time_zone: str) -> dict[str, Any]:
    """The key `source` of a project that reads the file as a table with this name; times may state no zone.

    A column whose name looks personal is sensitive from the beginning: rows that are set aside would show it. So is
    then a text column that most values of are of another type, as cells of a personal column may have moved into it.
    """
    from gatehouse.data.snapshot.sniffing import source_of
    from gatehouse.data.validation.inference.infer import looks_personal

    changed = datetime.fromtimestamp(int(file.stat().st_mtime), UTC).replace(tzinfo=None)
    source = source_of(sniffed, file, name, changed.isoformat(sep=" "))
    if time_zone and "time_zone" not in source:
        raise ConfigurationError(
            f"--time-zone: expected a column of times that state no zone, found none in {file.name}."
        )
    source |= {"time_zone": time_zone} if time_zone else {}
    if personal := [column.name for column in sniffed.kept if looks_personal(column.name)]:
        source["tables"][name]["sensitive"] = sorted({*personal, *(one.name for one in sniffed.kept if one.almost)})
    return source


def taken(source: Mapping[str, Any], contract_file: Path, store: ArtifactStore, sniffed: "Sniffed") -> FirstLook:
    """Take a snapshot of the file, write the contract that it meets, and judge it."""
    from gatehouse.data.snapshot.stage import SnapshotRequest, snapshot
    from gatehouse.data.sources.catalog import parse_source
    from gatehouse.data.validation.contract import CONTRACT_FILE, contract_text, parse_contract
    from gatehouse.data.validation.inference.infer import infer_contract
    from gatehouse.data.validation.stage import ValidateRequest, validate
    from gatehouse.reports.rendering import rendered

    # In canonical JSON, as in a run, so that both take the same snapshot.
    spec = parse_source(json.loads(canonical_json(source)))
    taken = snapshot(SnapshotRequest(source=spec, look=True), store)
    contract = infer_contract(store, taken.snapshot)
    contract_file.write_text(contract, encoding="utf-8")
    files = {CONTRACT_FILE: contract_text(parse_contract(contract))}
    config = store.publish("config", f"{source['name']}-contract", files)
    repeated = (_repeated_rows(sniffed.repeated),) if sniffed.repeated else ()
    judged = validate(ValidateRequest(snapshot=taken.snapshot, contract=str(config), delivery=repeated), store)
    references = [judged.validation, *taken.rejected.values()]
    return FirstLook(
        taken, judged.verdict, len(judged.warnings), tuple(rendered(store, find(store, each)) for each in references)
    )


def tell_warnings(console: Console, look: FirstLook) -> None:
    """Print what the guards of the snapshot said, if anything."""
    for warning in look.taken.warnings:
        console.print(Text(f"warning: {warning}", style="yellow"))


def tell_rejected(console: Console, look: FirstLook, name: str, sniffed: "Sniffed", needs: str, written: str) -> None:
    """Print which share of the rows is rejected, if it is larger than a source allows by default."""
    from gatehouse.data.snapshot.sniffing import USUAL_LIMIT

    rejected = look.taken.rejected_rows.get(name, 0)
    rows = look.taken.rows[name] + rejected
    if rejected > USUAL_LIMIT * rows:
        told = f"{rejected:,} of {rows:,} rows ({rejected / rows:.1%}) do not fit and are rejected: {needs} "
        told += f"reject_limit: {sniffed.reject_limit:g} ({USUAL_LIMIT:g} is usual), {written}. "
        told += "Look at the rejected rows before you rely on the others: `gatehouse data rejected`."
        console.print(Text(told, style="yellow"))


def tell_repeated(console: Console, rows: int) -> None:
    """Print how many rows are equal to an earlier one, if there are any."""
    if rows:
        console.print(Text(_repeated_rows(rows), style="yellow"))


def _repeated_rows(rows: int) -> str:
    same = "row is equal to an earlier one" if rows == 1 else "rows are each equal to an earlier one"
    return f"{rows:,} {same} in all columns: look whether they were delivered twice"


def tell_infinite(console: Console, values: Mapping[str, int], advice: str) -> None:
    """Print how many values of each column are infinite, by its name, if there are any."""
    if values:
        found = ", ".join(f"{name} has {counted(count, 'infinite value')}" for name, count in values.items())
        console.print(Text(f"{found}: {advice}", style="yellow"))


def _source_text(body: dict[str, Any]) -> str:
    told = "# How the file is read: what was found in it. Check the types, the times and their zone.\nsource:\n"
    return told + indented(body)


class _Dumper(yaml.SafeDumper):
    """Writes texts with several lines, such as a query, as block text."""


def _text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def indented(source: Mapping[str, Any]) -> str:
    """The declaration of a source as YAML, below its key."""
    written = yaml.dump(dict(source), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
    return "".join(f"  {line}\n" for line in written.splitlines())


def show(console: Console, file: Path, sniffed: "Sniffed") -> None:
    """Print what was found in a file."""
    from gatehouse.data.validation.inference.infer import looks_personal

    facts = [counted(sniffed.rows, "row")]
    if sniffed.delimiter:
        delimiter = _DELIMITERS.get(sniffed.delimiter, repr(sniffed.delimiter))
        facts += [f"separated by {delimiter}", sniffed.encoding.upper()]
        facts += ["decimal comma"] if sniffed.decimal == "," else []
        facts += [_missing(sniffed)]
    console.print(Text.assemble((file.name, "bold"), f"  {', '.join(facts)}"))
    hidden = any(looks_personal(column.name) for column in sniffed.columns)
    table = Table("column", "type", Column("missing", justify="right"), "", box=None, pad_edge=False)
    for column in sniffed.columns:
        missing = f"{column.missing:,}" if column.missing else ""
        kind = "" if column.left_out else str(column.kind)
        name = column.name if column.name == column.name.strip() else repr(column.name)
        table.add_row(name or "(no name)", kind, missing, _notes(column, sniffed, hidden))
    print_table(table)
    if words := sorted({column.mostly for column in sniffed.kept if column.mostly and not hidden}):
        told = f"If {', '.join(map(repr, words))} means a missing value: "
        told += " ".join(f"--nulls {shlex.quote(word)}" for word in words)
        nulls = yaml.safe_dump([*sniffed.nulls, *words], default_flow_style=True, allow_unicode=True, width=400)
        console.print(Text(f"{told}, which is `nulls: {nulls.strip()}` in the source", style="yellow"))
    _tell_marks(console, sniffed)
    if sniffed.uneven:
        have, are = ("has", "it is") if sniffed.uneven == 1 else ("have", "they are")
        told = f"{counted(sniffed.uneven, 'row')} {have} more or fewer cells than the header, {are} rejected."
        console.print(Text(told, style="yellow"))
    if sniffed.empty_lines:
        told = f"{counted(sniffed.empty_lines, 'empty line')} between the rows: an empty line is no row. "
        console.print(Text(f'{told}If it stands for a missing value, write "" in its place.', style="yellow"))
    if not sniffed.event_time:
        told = "No column is read as a time: unless you name one, each row gets the file's own time, as "
        told += f"{sniffed.delivered}."
        console.print(Text(told, style="yellow"))


def _tell_marks(console: Console, sniffed: "Sniffed") -> None:
    """Print how to read numbers that have signs in them, if there are any."""
    from gatehouse.data.snapshot.written_numbers import as_number

    marked = [column for column in sniffed.kept if column.marks and not column.doubtful]
    if marked:
        first, names = marked[0], ", ".join(column.name for column in marked)
        told = (
            f"{names}: numbers with signs in them are not read as numbers. Remove the signs from the file, or read it "
        )
        told += "with a query, as docs/sources.md shows under Numbers with signs in them: "
        console.print(Text(f"{told}{as_number(first.name, first.marks)}", style="yellow"))
    for column in sniffed.kept:
        if column.doubtful and column.marks:
            console.print(Text(_of_two_meanings(column, sniffed), style="yellow"))


def _of_two_meanings(column: "SniffedColumn", sniffed: "Sniffed") -> str:
    """How to read numbers whose points or commas may stand between thousands or before decimals."""
    from gatehouse.data.snapshot.written_numbers import COMMAS, as_number

    sign = "commas" if COMMAS in column.marks else "points"
    told = f"{column.name}: its {sign} may stand between thousands or before decimals, the file does not tell which. "
    told += "If between thousands, remove them from the file, or read it with a query, as docs/sources.md shows under "
    told += f"Numbers with signs in them: {as_number(column.name, column.marks)}. If before decimals, "
    if sign == "points":
        return f"{told}declare the column as double."
    if sniffed.delimiter == ",":
        return f"{told}write points in their place in the file."
    return f'{told}set decimal: "," in the source, and declare the column as double.'


def _missing(sniffed: "Sniffed") -> str:
    """How a CSV writes missing values."""
    written = ["empty cells"] * ("" in sniffed.missing_as) + [text for text in sniffed.missing_as if text]
    return f"missing values are {', '.join(written)}" if written else "no missing values"


def _notes(column: "SniffedColumn", sniffed: "Sniffed", hidden: bool) -> str:
    from gatehouse.data.validation.inference.infer import looks_personal

    notes = [f"left out: {column.left_out}"] * bool(column.left_out)
    if looks_personal(column.name):
        notes.append("its name looks personal: sensitive, no value of it is shown")
    if column.form:
        notes.append(f"written as {column.form}" if "%" in column.form else f"{column.form} since 1970")
    elif column.epoch:
        notes.append(
            f"may be {column.epoch} since 1970: then give --time {shlex.quote(column.name)} to `gatehouse init`"
        )
    if column.too_fine:
        notes.append("times finer than a microsecond stay texts: cut them at the source")
    if column.also:
        notes.append(f"{column.also} fits as well, check which it is")
    if column.naive:
        notes.append("no zone is stated: UTC is assumed, unless --time-zone names another")
    if column.name and column.name == sniffed.event_time:
        notes.append("orders the rows in time")
    notes += [f"text, as {column.why_text}"] * bool(column.why_text)
    notes += [column.note] * bool(column.note)
    if column.marks and not column.why_text:
        said = "stay text" if column.kind == "string" else "do not fit"
        notes.append(f"numbers with {' and '.join(column.marks)} {said}")
    notes += _misfits(column, sniffed, hidden)
    if column.missing == sniffed.rows:
        notes.append("empty")
    return "; ".join(notes)


def _misfits(column: "SniffedColumn", sniffed: "Sniffed", hidden: bool) -> Iterator[str]:
    """What is said of values that have another type than most; with `hidden` none of them is shown."""
    if not column.misfits or column.left_out:
        return
    if column.almost:
        told = f"text, as {column.misfits:,} of {sniffed.rows - column.missing:,} values are no {column.almost}"
    else:
        rows = "its row is" if column.misfits == 1 else "their rows are"
        # Parquet has one type in a column; what a snapshot cannot hold of it are times.
        which = "of another type" if sniffed.delimiter else "finer than a microsecond or not in the years 1 to 9999"
        told = f"{counted(column.misfits, 'value')} {which}, {rows} rejected"
    if column.mostly:
        word = "one text" if hidden else repr(column.mostly)
        told += f" ({'all' if column.mostly_rows == column.misfits else f'{column.mostly_rows:,}'} are {word})"
    elif column.such_as and not hidden:
        told += f" (such as {column.such_as!r})"
    yield told
    if column.almost and hidden:
        yield "sensitive, as personal values may have moved into it"


def _tell(console: Console, look: FirstLook, name: str, written: list[Path]) -> None:
    rows, rejected = look.taken.rows[name], look.taken.rejected_rows.get(name, 0)
    warned = f", {counted(look.warnings, 'warning')}" if look.warnings else ""
    console.print()
    lines = {
        "snapshot": f"{look.taken.snapshot}  {counted(rows, 'row')}{f', {rejected:,} rejected' if rejected else ''}",
        "contract": f"{look.verdict}{warned}: inferred from these rows",
        "written": ", ".join(map(str, written)),
        "report": ", ".join(map(str, look.pages)),
    }
    for label, text in lines.items():
        if text:
            console.print(Text.assemble((f"{label:<10}", "dim"), text))
    tell_warnings(console, look)
