"""Checks the first rows of a project's source against its declaration and contract, without a run."""

import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gatehouse.configuration.yaml_lines import at_line
from gatehouse.configuration.yaml_text import lines_of
from gatehouse.data.sources.base import KnownPart, Part, Source
from gatehouse.data.validation.contract import CONTRACT_FILE, Contract, contract_text
from gatehouse.errors import GatehouseError, SourceError
from gatehouse.project.project_file import PROJECT_FILE, ProjectFile
from gatehouse.project.sensitive_columns import with_sensitive_columns
from gatehouse.store.store import ArtifactStore

if TYPE_CHECKING:
    import pyarrow as pa

    from gatehouse.data.snapshot.deliveries import Table
    from gatehouse.data.validation.anomalies import Anomaly

_MOST_ROWS = 100_000
_SMALL_BYTES = 8 * 2**20
"""Files of so many bytes together are read in about a second."""
_OF_ALL_ROWS = {"min_rows", "freshness", "foreign_keys", "completeness", "min_distinct_share", "max_distinct_share"}
"""Rules that a part of the rows can break although all rows together keep them; also expressions with a tolerance."""


@dataclass
class FirstRows:
    """The first rows of every table, and their problems.

    Attributes:
        tables: At most 100,000 rows of each, as a snapshot would hold them.
        as_of: When the newest of them is known, if these are all rows of the source; else None.
        problems: Problems that would end a run, one sentence each.
        failure: The error with which a run would end where the source cannot be read.
        warnings: Problems with which a run would continue: rejected rows, and rules that only warn.
        for_the_gate: How many warnings the gate would get too: those of guards and of the contract.
    """

    tables: "dict[str, pa.Table]" = field(default_factory=dict)
    as_of: datetime | None = None
    problems: list[str] = field(default_factory=list)
    failure: GatehouseError | None = None
    warnings: list[str] = field(default_factory=list)
    for_the_gate: int = 0


@dataclass(frozen=True)
class _Beginning:
    """A source of which only the first rows of each table are read."""

    source: Source
    cut: set[str]

    def state(self) -> Mapping[str, Any]:
        return self.source.state()

    def parts(self, table: str, known: tuple[KnownPart, ...]) -> Iterator[Part]:
        parts = list(islice(self.source.parts(table, known), 2))
        if len(parts) > 1:
            self.cut.add(table)
        yield from parts[:1]


def first_rows(
    folder: Path, file: ProjectFile, contract: Contract, judged: bool = True, location: str = ""
) -> FirstRows:
    """Take a snapshot of the first rows with the code of a run, and check the contract on it.

    Rules that a part of the rows can break are judged only if the first rows are the whole source.

    Args:
        folder: The project's folder.
        file: Its project.yaml.
        contract: The rules for its tables, and the columns whose values must be hidden.
        judged: Whether the contract fits the source, so that the rows are checked against it.
        location: Where the files of the source are instead; empty for its own place.
    """
    from gatehouse.data.snapshot.deliveries import Deliveries
    from gatehouse.data.snapshot.ingestion import Opened, as_of, take
    from gatehouse.data.sources.catalog import open_source

    found, lines = FirstRows(), lines_of((folder / PROJECT_FILE).read_text())
    spec = with_sensitive_columns(file.source, contract)
    with tempfile.TemporaryDirectory() as scratch, contextlib.chdir(folder):
        store = ArtifactStore.open(scratch)
        try:
            with open_source(spec, location, store) as source:
                beginning = _Beginning(source, set())
                opened = Opened(spec, beginning, source.state(), Deliveries(store, spec.name, ""), "", "")
                delivery = take(opened, store)
        except GatehouseError as error:
            found.failure = error
            found.problems.append(f"{PROJECT_FILE}:{_member_line(file, lines, str(error))}: source: {error}")
            return found
        found.warnings += (at_line(PROJECT_FILE, lines, f"source: {warning}") for warning in delivery.warnings)
        found.for_the_gate += len(delivery.warnings)
        for name, table in delivery.tables.items():
            found.tables[name] = _head(store, table)
            found.warnings += (at_line(PROJECT_FILE, lines, each) for each in _rejected(store, name, table))
        if not beginning.cut and all(table.rows <= _MOST_ROWS for table in delivery.tables.values()):
            found.as_of = datetime.fromisoformat(as_of(spec, delivery.tables))
        if judged:
            try:
                _judge(store, delivery.snapshot, file, contract, bool(beginning.cut), found)
            except GatehouseError as error:
                found.problems.append(f"{file.contract}: {error}")
    return found


def is_small(folder: Path, file: ProjectFile, location: str = "") -> bool:
    """Whether a source is files in a folder of this machine that are read in about a second.

    Args:
        folder: The project's folder.
        file: Its project.yaml.
        location: Where the files are instead; empty for the source's own place.
    """
    from gatehouse.data.sources.files import FolderSource
    from gatehouse.data.sources.raw_file import find_files

    if not isinstance(file.source, FolderSource) or "://" in (place := location or file.source.path):
        return False
    try:
        members = (table.member for table in file.source.tables.values())
        return sum(each.size() for member in members for each in find_files(str(folder / place), member)) < _SMALL_BYTES
    except SourceError:  # Then the look says what is missing, which takes no time.
        return True


def _head(store: ArtifactStore, table: "Table") -> "pa.Table":
    import pyarrow.parquet as pq

    return pq.read_table(store.paths(table.dataset)[0]).slice(0, _MOST_ROWS)


def _member_line(file: ProjectFile, lines: Mapping[tuple[Any, ...], int], told: str) -> int:
    """The line of the table whose file an error names, or that of the source."""
    source = file.source
    named = [name for name, table in source.tables.items() if repr(getattr(table, "member", None)) in told]
    keys: list[tuple[str, ...]] = [("source", "tables", name, "member") for name in named[:1]]
    return next((lines[key] for key in (*keys, ("source",)) if key in lines), 1)


def _rejected(store: ArtifactStore, name: str, table: "Table") -> Iterator[str]:
    """The rows of a table that would be rejected, by reason."""
    from gatehouse.data.snapshot.rejected import groups_of

    for group in groups_of(store, table.rejected, 1) if table.rejected else ():
        (first,) = group.examples
        column = f".columns.{group.column}" * bool(group.column)
        yield (
            f"source.tables.{name}{column}: {group.rows:,} of the first "
            f"{table.rows + table.rejected_rows:,} rows would be rejected: {group.reason}, first at {first.place}, "
            f"found {first.found or first.raw}. Correct the rows or the declaration"
        )


def _judge(
    store: ArtifactStore, snapshot: str, file: ProjectFile, contract: Contract, cut: bool, found: FirstRows
) -> None:
    from gatehouse.data.validation.anomalies import Anomaly
    from gatehouse.data.validation.stage import ValidateRequest, validate

    # Other snapshots are in the project's store, and their keys are checked against all rows.
    own = {
        name: table.model_copy(update={"foreign_keys": tuple(key for key in table.foreign_keys if not key.snapshot)})
        for name, table in contract.tables.items()
    }
    text = contract_text(contract.model_copy(update={"tables": own}))
    published = store.publish("config", f"{file.name}-contract", {CONTRACT_FILE: text})
    lines = lines_of((Path.cwd() / file.contract).read_text())
    judged = validate(ValidateRequest(snapshot=snapshot, contract=str(published)), store)
    for body in store.read_json(judged.validation, "anomalies.json"):
        one = Anomaly.from_json(body)
        if not (cut and _of_all_rows(one, contract)):
            key: tuple[str, ...] = ("tables", one.table, "columns", one.column, *one.rule.split("."))
            line = next((lines[key[:length]] for length in range(len(key), 0, -1) if key[:length] in lines), 1)
            told = f"{file.contract}:{line}: of the first rows, {one.told}"
            (found.problems if one.severity == "fail" else found.warnings).append(told)
            found.for_the_gate += one.severity != "fail"


def _of_all_rows(one: "Anomaly", contract: Contract) -> bool:
    rule, _, name = one.rule.removeprefix("warn.").partition(" ")
    tolerant = {each.name for each in contract.tables[one.table].expressions if each.tolerance}
    return rule in _OF_ALL_ROWS or (rule == "expression" and name in tolerant)
