"""New projects: from a template, or from a table whose columns get their roles; and a first look at any table."""

import contextlib
import itertools
import json
import math
import re
import shutil
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unicodedata import category, normalize

from gatehouse.configuration.yaml_lines import nearest, yaml_text
from gatehouse.errors import ConfigurationError
from gatehouse.features.definitions.settings import feast_name
from gatehouse.project.place import DEFAULT_STORE, LONGEST_NAME, find, whole_or_none
from gatehouse.runtime.plural import counted
from gatehouse.store.canonical import canonical_json
from gatehouse.store.database import connect, quoted
from gatehouse.store.store import ArtifactStore

if TYPE_CHECKING:
    import duckdb

    from gatehouse.data.snapshot.sniffing import Sniffed, SniffedColumn
    from gatehouse.data.snapshot.stage import SnapshotResult
    from gatehouse.data.splitting.spec import Fractions

_TEMPLATES = Path(__file__).parents[1] / "project" / "templates"
_NAME = re.compile(rf"[a-z][a-z0-9-]{{0,{LONGEST_NAME - 1}}}\Z")
_CONDITION = re.compile(r"\s*(<=|>=|<>|!=|=|<|>)\s*(.+)")
_OWN_NAMES = {"event_timestamp", "known_from", "known_at", "decision_time", "label", "label_time", "row_key"}
_KEY = re.compile(r"(^|[^a-z])(id|key|no|nr|number|uuid)$")
_FEW_VALUES, _MANY_VALUES, _MOST_SLICES = 50, 100, 12
_RARE = 0.2
"""With a smaller share of one of two classes a threshold of 0.5 may find none of its rows."""
_SHARE_OF_KEY = 0.9
"""A column with the name of a key is no feature if this share of the rows has a value of its own."""
_COLUMNS_AT_ONCE = 50
_EXACT_IN_32_BITS = 2**24
_MOST_TEST = 0.4
_BATCHES, _LARGEST_BATCH = 8, 1024
_DELIMITERS = {"\t": "tab", " ": "blank"}


@dataclass(frozen=True)
class Look:
    """A first look at a file: how it is read, its snapshot, pages, warnings, and the contract that it meets."""

    file: str
    reading: str
    columns: list[dict[str, str | int]]
    rows: int
    rejected: int
    snapshot: str
    pages: list[Path]
    warnings: list[str]
    contract: str = field(repr=False)


@dataclass(frozen=True)
class Roles:
    """The roles that a person gave to columns; empty if not given, `none` for no such column."""

    label: str
    task: str = ""
    positive: str = ""
    time: str = ""
    key: str = ""
    known: str = ""
    without: tuple[str, ...] = ()
    group: str = ""
    alarm: float | None = None


@dataclass(frozen=True)
class _Column:
    """A column of the table: its declared type, and how many values it has; `texts` are all of them if they are few."""

    name: str
    kind: str
    distinct: int
    missing: int
    infinite: int
    largest: float
    texts: tuple[str, ...]

    @property
    def sql(self) -> str:
        """A name in any script that SQL accepts without quotes, and that differs from Gatehouse's own columns."""
        letters = (c if c.isalnum() or category(c)[0] == "M" else "_" for c in normalize("NFKC", self.name.lower()))
        name = re.sub("_+", "_", "".join(letters)).strip("_") or "column"
        name = name if name[0].isalpha() else f"c_{name}"
        return f"{name}_value" if name in _OWN_NAMES else name

    @property
    def feature_kind(self) -> str:
        """Its kind as a feature."""
        if self.kind == "string":
            return "categorical"
        return "double" if self.kind == "int64" and self.largest > _EXACT_IN_32_BITS else "numeric"


@dataclass(frozen=True)
class _Assigned:
    """The column of each role; `positive` is the SQL condition after the label's name that makes a row positive."""

    label: _Column
    task: str
    positive: str
    key: _Column | None
    time: _Column
    known: _Column | None
    group: _Column | None
    features: tuple[_Column, ...]
    left_out: Mapping[str, str]

    @property
    def title(self) -> str:
        """The column that the model predicts."""
        return f"{self.label.name} {self.positive}".strip()


def create_project(name: str, parent: Path) -> Path:
    """Write the template as `<parent>/<name>`; nothing is overwritten."""
    target = _new_folder(name, parent)
    with whole_or_none(target) as made:
        _fill(_TEMPLATES / "project", made, {"name": name, "feast": feast_name(name)})
    return target


def create_from_table(
    name: str, parent: Path, file: Path, roles: Roles, nulls: Sequence[str] = (), time_zone: str = ""
) -> tuple[Path, Look, dict[str, str]]:
    """Write a project that predicts a column of a file, of which it has a copy; no folder is left if this fails.

    Gives the folder, the look at the file, and what the project does, in words.
    """
    from gatehouse.data.snapshot.sniffing import sniff
    from gatehouse.evaluation.spec import LEAST_TEST_ROWS

    target, table, sniffed = _new_folder(name, parent), table_name(file), sniff(file, nulls)
    _require_columns(roles, [column.name for column in sniffed.kept])
    timed = sniffed.ordered_by(_time(roles.time, sniffed))
    with whole_or_none(target) as made:
        (made / "data").mkdir()
        shutil.copy2(file, made / "data")
        store = ArtifactStore.open(made / DEFAULT_STORE)
        with contextlib.chdir(made):
            source = declared(timed, Path("data", file.name), table, time_zone)
            look = _looked(source, store, timed, sniffed.columns)
        declaration = source["tables"][table]
        with connect() as connection:
            dataset = store.manifest(look.snapshot).derived_from[table]
            connection.read_parquet([str(path) for path in store.paths(dataset)]).create_view("rows")
            columns = _columns(connection, declaration["columns"])
            assigned = _assigned(roles, columns, look.rows, declaration["event_time"])
            labelled = look.rows - assigned.label.missing
            positive = f"{quoted(assigned.label.name)} {assigned.positive}"
            rare = assigned.positive and connection.execute(
                f"SELECT least(avg(({positive})::INT), avg((NOT {positive})::INT)) < {_RARE} FROM rows"
            ).fetchall() == [(True,)]
            shares = shares_of(labelled, LEAST_TEST_ROWS)
            split, divided = _split(connection, assigned, look.rows, shares, bool(timed.event_time))
        values = _values(name, table, source, assigned, roles.alarm, round(shares.train * labelled))
        _fill(_TEMPLATES / "table", made, values | {"split": split, "rare": rare})
        (made / "contract.yaml").write_text(look.contract, encoding="utf-8")
        report = target / look.pages[0].relative_to(made)
    words = {
        "predicts": assigned.title,
        "task": assigned.task,
        "from": ", ".join(column.name for column in assigned.features),
        "key": assigned.key.name if assigned.key else "made of each row's values",
        "decided": assigned.time.name,
        "label": f"known at {(assigned.known or assigned.time).name}",
        "divided": divided,
        **{f"left out {column}": why for column, why in assigned.left_out.items()},
        "report": str(report),
    }
    for column in assigned.features:
        if column.kind == "string" and column.distinct > _MANY_VALUES:
            look.warnings.append(
                f"{column.name} has {column.distinct:,} values, of which a model can learn single rows: compare with "
                f"--without {column.name!r}."
            )
        if re.search(r"(?:_id|I[dD])$", column.name) and column.distinct < look.rows and not assigned.group:
            look.warnings.append(
                f"{column.name} has {column.distinct:,} values in {look.rows:,} rows: if rows of one value belong "
                f"together, give --group {column.name!r}, so that they stay in one part and are drawn together."
            )
    parts = {part: round(share * labelled) for part, share in shares.model_dump().items()}
    if min(parts.values()) < LEAST_TEST_ROWS:
        sizes = ", ".join(f"{part} {size:,}" for part, size in parts.items())
        gate = " The gate lets no model pass on fewer test rows." if parts["test"] < LEAST_TEST_ROWS else ""
        few = f"few rows: {sizes}. Measures on fewer than {LEAST_TEST_ROWS} rows of a part are uncertain.{gate}"
        look.warnings.append(few)
    return target, look, words


def look_at(file: Path, store: ArtifactStore, nulls: Sequence[str] = (), time_zone: str = "") -> Look:
    """Take a snapshot of an undeclared CSV or Parquet file, infer the contract that it meets, and validate it."""
    from gatehouse.data.snapshot.sniffing import sniff

    sniffed = sniff(file, nulls)
    return _looked(declared(sniffed, file.resolve(), table_name(file), time_zone), store, sniffed, sniffed.columns)


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


def _looked(
    source: Mapping[str, Any], store: ArtifactStore, sniffed: "Sniffed", columns: Iterable["SniffedColumn"]
) -> Look:
    from gatehouse.data.snapshot.stage import SnapshotRequest, snapshot
    from gatehouse.data.sources.catalog import parse_source
    from gatehouse.data.validation.contract import CONTRACT_FILE, contract_text, parse_contract
    from gatehouse.data.validation.inference import infer_contract
    from gatehouse.data.validation.stage import ValidateRequest, validate
    from gatehouse.reports.contents import rendered

    ((table, declaration),) = source["tables"].items()
    spec = parse_source(json.loads(canonical_json(source)))  # As in a run, so that both take the same snapshot.
    taken = snapshot(SnapshotRequest(source=spec, look=True), store)
    contract = infer_contract(store, taken.snapshot)
    files = {CONTRACT_FILE: contract_text(parse_contract(contract))}
    config = store.publish("config", f"{source['name']}-contract", files)
    validation = validate(ValidateRequest(snapshot=taken.snapshot, contract=str(config)), store).validation
    reading = [counted(sniffed.rows, "row")]
    if sniffed.delimiter:
        missing = ["empty cells" if text == "" else text for text in sniffed.missing_as]
        delimiter = _DELIMITERS.get(sniffed.delimiter, repr(sniffed.delimiter))
        reading += [f"separated by {delimiter}", sniffed.encoding.upper()]
        reading += ["decimal comma"] if sniffed.decimal == "," else []
        reading += [f"missing values are {', '.join(missing)}" if missing else "no missing values"]
    return Look(
        file=Path(declaration["member"]).name,
        reading=", ".join(reading),
        columns=_notes(columns, sniffed.event_time, _missing(store, validation, table)),
        rows=taken.rows[table],
        rejected=taken.rejected_rows.get(table, 0),
        snapshot=taken.snapshot,
        pages=[rendered(store, find(store, artifact)) for artifact in (validation, *taken.rejected.values())],
        warnings=_warnings(store, taken, sniffed, table),
        contract=contract,
    )


def _missing(store: ArtifactStore, validation: str, table: str) -> dict[str, int]:
    """How many values each column of a validated table lacks."""
    from gatehouse.data.statistics.stage import measurement, statistics_of

    columns = measurement(store, statistics_of(store, validation)).statistics[table]
    return {name: column["nulls"] for name, column in columns.items()}


def _notes(
    columns: Iterable["SniffedColumn"], event_time: str, missing: Mapping[str, int]
) -> list[dict[str, str | int]]:
    """Hints for a person about each column."""
    from gatehouse.data.validation.inference import looks_personal

    columns, rows = list(columns), []
    hidden = any(looks_personal(column.name) for column in columns)
    for column in columns:
        misfits = ""
        if column.almost and column.misfits:
            misfits = f"text, because {column.misfits:,} values are not {column.almost}"
            misfits += "; sensitive, as personal values may have moved into it" if hidden else ""
        elif column.misfits:
            misfits = f"{counted(column.misfits, 'value')} of another type will be rejected"
        notes = (
            looks_personal(column.name) and "its name looks personal: sensitive, no value of it is shown",
            column.form and (f"written as {column.form}" if "%" in column.form else f"{column.form} since 1970"),
            column.percent and "12% is read as 0.12",
            column.epoch
            and not column.form
            and f"may be {column.epoch} since 1970: --time of `gatehouse init` reads it so",
            column.also and f"{column.also} fits as well, check which it is",
            column.naive and "no zone is stated: UTC is assumed, unless --time-zone names another",
            column.name == event_time and "orders the rows in time",
            column.why_text and f"text, as {column.why_text}",
            misfits,
        )
        note = f"left out: {column.left_out}" if column.left_out else "; ".join(note for note in notes if note)
        name = column.name if column.name == column.name.strip() else repr(column.name)
        kind = "" if column.left_out else str(column.kind)
        rows.append(
            {"column": name or "(no name)", "type": kind, "missing": missing.get(column.name) or "", "note": note}
        )
    return rows


def _warnings(store: ArtifactStore, taken: "SnapshotResult", sniffed: "Sniffed", table: str) -> list[str]:
    """The warnings of the snapshot, and how many rows are rejected or repeated, if that matters."""
    from gatehouse.data.snapshot.sniffing import USUAL_LIMIT

    lines, rejected = [f"warning: {warning}" for warning in taken.warnings], taken.rejected_rows.get(table, 0)
    rows = taken.rows[table] + rejected
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
    dataset = store.manifest(taken.snapshot).derived_from[table]
    with connect() as connection:
        read = connection.read_parquet([str(path) for path in store.paths(dataset)])
        if repeated := taken.rows[table] - len(read.distinct()):
            lines.append(f"{counted(repeated, 'row')} repeat an earlier row in all columns")
    return lines


def _new_folder(name: str, parent: Path) -> Path:
    if not _NAME.match(name):
        raise ConfigurationError(
            f"{name!r} is no project name: expected at most {LONGEST_NAME} lower-case letters, digits and '-', "
            "a letter first, e.g. returns."
        )
    if (parent / name).exists():
        raise ConfigurationError(f"{parent / name} exists already. Choose another name, or remove it.")
    return parent / name


def _fill(template: Path, target: Path, values: Mapping[str, object]) -> None:
    """Write the files of a template for Jinja; TABLE and LABEL stand for these in the names of files."""
    from jinja2 import Environment, StrictUndefined

    jinja = Environment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
    jinja.filters |= {"quoted": quoted, "repr": repr, "json": json.dumps}
    for source in sorted(path for path in template.rglob("*") if path.is_file() and "__pycache__" not in path.parts):
        written = source.relative_to(template).as_posix().removesuffix(".in")
        for placeholder in ("table", "label"):
            written = written.replace(placeholder.upper(), str(values.get(placeholder, "")))
        (target / written).parent.mkdir(parents=True, exist_ok=True)
        text = jinja.from_string(source.read_text(encoding="utf-8")).render(values)
        (target / written).write_text(text, encoding="utf-8")


def _require_columns(roles: Roles, columns: Sequence[str]) -> None:
    """Refuse roles of columns that the file does not have."""
    if not roles.label:
        raise ConfigurationError(f"--label: expected a column of the file ({', '.join(columns)}), found none.")
    named = [(flag, getattr(roles, flag)) for flag in ("known", "key", "group", "label")]
    for flag, name in [*named, *(("without", name) for name in roles.without)]:
        if name not in (*columns, "", "none"):
            listed = f"{', '.join(columns)}), found {name!r}{nearest(name, columns)}"
            raise ConfigurationError(f"--{flag}: expected a column of the file ({listed}.")


def _time(option: str, sniffed: "Sniffed") -> str:
    """The column with the time of the decision; empty for none."""
    times = [column.name for column in sniffed.kept if str(column.kind) == "timestamp" or column.epoch]
    if option in ("", "none") or option in times:
        return "" if option == "none" else option or sniffed.event_time
    raise ConfigurationError(
        f"--time: expected a column of times ({', '.join(times) or 'the file has none'}) or none, found "
        f"{option!r}{nearest(option, times)}."
    )


def _columns(connection: "duckdb.DuckDBPyConnection", kinds: Mapping[str, str]) -> dict[str, _Column]:
    """Facts about the columns of the table `rows`."""
    columns = {}
    for start in range(0, len(kinds), _COLUMNS_AT_ONCE):
        some = dict(list(kinds.items())[start : start + _COLUMNS_AT_ONCE])
        facts = []
        for name, kind in some.items():
            cell = quoted(name)
            facts += [f"count(DISTINCT {cell})", f"count(*) FILTER ({cell} IS NULL)"]
            facts.append(f"count(*) FILTER (isinf({cell}))" if kind == "double" else "0")
            facts.append(f"greatest(max({cell}), -(min({cell})::DOUBLE))" if kind == "int64" else "0")
        row = connection.execute(f"SELECT {', '.join(facts)} FROM rows").fetchall()[0]
        for place, (name, kind) in enumerate(some.items()):
            distinct, missing, infinite, largest = row[4 * place : 4 * place + 4]
            texts = []
            if 1 < distinct <= _FEW_VALUES:
                values = f"SELECT DISTINCT {quoted(name)} FROM rows WHERE {quoted(name)} IS NOT NULL ORDER BY 1"
                texts = connection.execute(f"SELECT {quoted(name)}::VARCHAR FROM ({values})").fetchall()
            columns[name] = _Column(name, kind, distinct, missing, infinite, largest or 0, tuple(t for (t,) in texts))
    return columns


def _assigned(roles: Roles, columns: Mapping[str, _Column], rows: int, time: str) -> _Assigned:
    """The column of each role, from what a person said, else by its values."""
    group = "" if roles.group == "none" else roles.group
    known = "" if roles.known == "none" else roles.known
    label = columns[roles.label]
    if label.name in (time, *roles.without) or label.kind == "timestamp" or label.distinct < 2:
        raise ConfigurationError(
            f"--label: expected a column of two values at least that is no time, found {label.name} with "
            f"{label.distinct:,}."
        )
    if known and columns[known].kind != "timestamp":
        raise ConfigurationError(f"--known: expected a column of times, found {known}.")
    numeric = label.kind in ("int64", "double", "bool")
    if roles.positive and roles.task not in ("", "binary"):
        raise ConfigurationError(f"--positive: expected --task binary, found --task {roles.task}.")
    likely = "binary" if label.distinct == 2 or roles.positive else "regression" if numeric else "multiclass"
    task = roles.task or likely
    if task == "multiclass" and not label.texts:
        raise ConfigurationError(
            f"--task multiclass: expected a label of at most {_FEW_VALUES} values, found {label.name} with "
            f"{label.distinct:,}."
        )
    if task == "regression" and not numeric:
        raise ConfigurationError(f"--task regression: expected a column of numbers, found {label.name}.")
    positive = _positive(label, roles.positive) if task == "binary" else ""
    key = _key(roles.key, columns, rows, {label.name, time, *roles.without})
    used = {time, known, label.name, key.name if key else ""}
    if group and (group in used or columns[group].missing):
        raise ConfigurationError(f"--group: expected a value in every row and no other role, found {group}.")
    used.add(group)
    left_out: dict[str, str] = {}
    for name, column in columns.items():
        if name in used:
            continue
        unlike = column.kind in ("int64", "string") and column.distinct >= _SHARE_OF_KEY * rows
        if name in roles.without:
            left_out[name] = "as you said"
        elif column.kind == "timestamp":
            left_out[name] = "a time: make numbers of it in staging"
        elif column.distinct < 2:
            left_out[name] = "the same value in all rows"
        elif unlike and (column.distinct == rows or _KEY.search(name.lower())):
            left_out[name] = "looks like a key" if column.distinct < rows else "another value in every row"
        elif column.kind == "string" and column.distinct > max(_FEW_VALUES, rows / 2):
            left_out[name] = "a text that hardly repeats"
    features = tuple(column for name, column in columns.items() if name not in used and name not in left_out)
    if not features:
        listed = "; ".join(f"{name}: {why}" for name, why in left_out.items())
        raise ConfigurationError(f"Expected a column to predict {label.name} from, found none. Left out: {listed}.")
    names: dict[str, str] = {}
    for name in (*sorted(used - {""}), *(column.name for column in features)):
        if (other := names.setdefault(columns[name].sql, name)) != name:
            raise ConfigurationError(
                f"the columns {other!r} and {name!r} are both called {columns[name].sql} in SQL. Rename one in the "
                f"file, or leave it out: --without {name!r}."
            )
    more = (columns[time], columns[known] if known else None, columns[group] if group else None)
    return _Assigned(label, task, positive, key, *more, features, left_out)


def _positive(label: _Column, option: str) -> str:
    """The condition for a positive row, as SQL after the label's name."""
    both = label.texts if label.distinct == 2 else ()
    if not option and not both:
        raise ConfigurationError(f"--positive: expected a value of {label.name}, or a condition such as '>= 7'.")
    value, sign = option or both[1], "="
    if value not in both and (condition := _CONDITION.fullmatch(value)):
        sign, value = condition[1], condition[2]
    elif both and value not in both:
        raise ConfigurationError(f"--positive: expected {' or '.join(both)}, found {value!r}.")
    if label.kind == "bool":
        return "= false" if value == "false" else "= true"
    if label.kind == "string":
        escaped = value.strip("'").replace("'", "''")
        return f"{sign} '{escaped}'"
    with contextlib.suppress(ValueError):
        if math.isfinite(float(value)):
            return f"{sign} {value}"
    raise ConfigurationError(f"--positive: expected a number or such as >= 7, found {value!r}.")


def _key(option: str, columns: Mapping[str, _Column], rows: int, taken: set[str]) -> _Column | None:
    """The column that identifies a row; None if a key is made from each row's values."""
    unique = [
        name
        for name, column in columns.items()
        if column.distinct == rows and column.kind in ("int64", "string") and name not in taken
    ]
    if not option:
        first = next((name for name in columns if name not in taken), "")
        option = next((name for name in unique if _KEY.search(name.lower()) or name == first), "none")
    if option != "none" and option not in unique:
        raise ConfigurationError(
            f"--key: expected a column of whole numbers or texts with another value in every row "
            f"({', '.join(unique) or 'there is none'}), found {option} with {columns[option].distinct:,} values in "
            f"{rows:,} rows. With --key none a key is made of each row's values."
        )
    return None if option == "none" else columns[option]


def shares_of(rows: int, least_test_rows: int) -> "Fractions":
    """The usual shares of the parts, or a larger test part where the gate would judge no model on the usual one."""
    from gatehouse.data.splitting.spec import Fractions

    usual, enough = Fractions(), 1.25 * least_test_rows  # A hash may give a part a few rows less than its share.
    if usual.test * rows >= enough or _MOST_TEST * rows < least_test_rows:
        return usual
    test = round(min(_MOST_TEST, enough / rows), 2)
    return Fractions(train=round(1 - usual.validation - test, 2), validation=usual.validation, test=test)


def _split(
    connection: "duckdb.DuckDBPyConnection", roles: _Assigned, rows: int, shares: "Fractions", timed: bool
) -> tuple[str, str]:
    """The section `split` of project.yaml, and what it says in words: by a group, by time, or by a hash."""
    from gatehouse.data.splitting.spec import Fractions

    fractions = ""
    if shares != Fractions():
        listed = ", ".join(f"{part}: {share}" for part, share in shares.model_dump().items())
        fractions = f"\n  # More rows than usual are for test, so that the gate can judge.\n  fractions: {{{listed}}}"
    complete = [column for column in roles.features if not column.missing]
    distinct = f"SELECT count(*) FROM (SELECT DISTINCT {', '.join(quoted(c.name) for c in complete)} FROM rows)"
    if roles.group:
        comment = f"All rows of one {roles.group.sql} stay in one part. It is kept in the label's query, no feature."
        settings = {"strategy": "group", "columns": [roles.group.sql]}
        words = f"by {roles.group.name}, whose rows stay in one part"
    elif timed and (ends := _boundaries(connection, roles.time.name, shares)):
        comment = "How long before the newest decision train and validation end: so a later training learns newer rows."
        settings = {"strategy": "time", "train_until": ends[0], "validation_until": ends[1], "gap": "PT0S"}
        words, fractions = f"by time, {ends[0]} and {ends[1]} before the newest row", ""
    elif complete and 100 <= connection.execute(distinct).fetchall()[0][0] < 0.99 * rows:
        comment = (
            "Many rows are equal in all features. These stay in one part, or the test would ask what training saw."
        )
        settings = {"strategy": "group", "columns": [column.sql for column in complete]}
        words = "by a hash of the features, as many rows are equal in all of them"
    else:
        comment = "By a hash of each row's key, as no times divide the rows into three parts."
        settings = {"strategy": "random" if roles.task == "regression" else "stratified"}
        words = "by a hash: no times divide the rows"
    return f"# {comment}\nsplit:\n{textwrap.indent(yaml_text(settings), '  ')}{fractions}", words


def _boundaries(connection: "duckdb.DuckDBPyConnection", time: str, shares: "Fractions") -> tuple[str, str] | None:
    """Distance of the ends of train and validation from the newest row, in whole units, if all parts have rows."""
    moment, ends = f"epoch_us({quoted(time)})", (shares.train, round(shares.train + shares.validation, 2))
    bounds = connection.execute(
        f"SELECT min({moment}), quantile_disc({moment}, {ends[0]}), quantile_disc({moment}, {ends[1]}), max({moment}) "
        "FROM rows"
    ).fetchall()[0]
    spans = [timedelta(microseconds=later - earlier) for earlier, later in itertools.pairwise(bounds)]
    unit = timedelta(days=1) if min(spans) > timedelta(days=3) else timedelta(seconds=1)
    if min(spans) <= unit:
        return None
    train, validation = (round(timedelta(microseconds=bounds[-1] - end) / unit) for end in bounds[1:3])
    return (f"P{train}D", f"P{validation}D") if unit.days else (f"PT{train}S", f"PT{validation}S")


def _values(
    name: str, table: str, source: Mapping[str, Any], roles: _Assigned, alarm: float | None, train_rows: int
) -> dict[str, Any]:
    """The values that the templates of a table's project read, but for `split`."""
    from gatehouse.metrics.judging import profile_of
    from gatehouse.metrics.tasks import TASKS

    task = TASKS[roles.task]
    profile = profile_of(task)
    ((alarm_metric, model_alarm),) = profile.leakage_alarm.items()
    feature_alarm = profile.feature_alarm if alarm is None else alarm
    loss, watched = next(iter(task.losses.items()))
    with connect() as database:
        words = "SELECT keyword_name FROM duckdb_keywords() WHERE keyword_category <> 'unreserved'"
        reserved = {str(word) for (word,) in database.execute(words).fetchall()}
    label, key = (
        column.sql if column and column.sql.isascii() else other  # Names of definitions are ASCII.
        for column, other in ((roles.label, "outcome"), (roles.key, "row_key"))
    )
    title = f"Predicts {roles.title}"
    staged = [roles.key, roles.label, roles.time, roles.known, roles.group, *roles.features]
    sliced = (
        column.sql for column in roles.features if column.kind == "string" and 1 < column.distinct <= _MOST_SLICES
    )
    return {
        "name": name,
        "feast": feast_name(name),
        "description": f"{title if title.isascii() else f'Predicts {label}'}.",
        "source": textwrap.indent(yaml_text(dict(source), width=110), "  "),
        "label": label,
        "outcome": "the label" if task.has_classes else "labels above the median",
        "feature_alarm": feature_alarm,
        "loss": loss,
        "watched": watched,
        "batch": max(1, min(_LARGEST_BATCH, train_rows // _BATCHES)),
        "slices": [name for name in [next(sliced, "")] if name],
        "objective": profile.objective,
        "alarm_metric": alarm_metric,
        "model_alarm": feature_alarm if alarm_metric == "roc_auc" else model_alarm,
        "table": table,
        "key": key,
        "roles": roles,
        "title": f"{title}.",
        "classes": roles.label.texts if roles.task == "multiclass" else (),
        "staged": list({column.name: column for column in staged if column}.values()),
        "quoted": quoted,
        "sql": lambda name: quoted(name) if name in reserved else name,
    }
