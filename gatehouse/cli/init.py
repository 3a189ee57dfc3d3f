"""`gatehouse init`: writes a commented project to start from, or one that runs on a given table."""

import contextlib
import itertools
import json
import math
import re
import shutil
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal
from unicodedata import category, normalize

import typer
from rich.console import Console
from rich.text import Text

from gatehouse.cli import first_look
from gatehouse.cli.first_look import NullsOption, TimeZoneOption
from gatehouse.configuration.yaml_lines import nearest, yaml_text
from gatehouse.errors import ConfigurationError
from gatehouse.features.definitions.settings import feast_name
from gatehouse.project.place import DEFAULT_STORE, LONGEST_NAME, whole_or_none
from gatehouse.store.database import connect, quoted
from gatehouse.store.store import ArtifactStore

if TYPE_CHECKING:
    import duckdb

    from gatehouse.data.snapshot.sniffing import Sniffed
    from gatehouse.data.splitting.spec import Fractions

_TEMPLATES = Path(__file__).parents[1] / "project" / "templates"
_NAME = re.compile(rf"[a-z][a-z0-9-]{{0,{LONGEST_NAME - 1}}}\Z")
_CONDITION = re.compile(r"\s*(<=|>=|<>|!=|=|<|>)\s*(.+)")
_OWN_NAMES = {"event_timestamp", "known_from", "known_at", "decision_time", "label", "label_time", "row_key"}
_KEY = re.compile(r"(^|[^a-z])(id|key|no|nr|number|uuid)$")
_FEW_VALUES, _MOST_SLICES = 50, 12
_SHARE_OF_KEY = 0.9
"""A column with the name of a key is no feature if this share of the rows has a value of its own."""
_COLUMNS_AT_ONCE = 50
_EXACT_IN_32_BITS = 2**24
_MOST_TEST = 0.4
_BATCHES, _LARGEST_BATCH = 8, 1024
_Task = Literal["", "binary", "multiclass", "regression"]


@dataclass(frozen=True)
class _Flags:
    """The flags about columns; empty if not given, `none` for no such column."""

    label: str
    task: _Task
    positive: str
    time: str
    key: str
    label_time: str
    without: Sequence[str]
    group: str
    alarm: float | None

    def require_columns(self, columns: Sequence[str]) -> None:
        """Refuse flags that name no column of the file."""
        flags = [("known", self.label_time), ("key", self.key), ("group", self.group)]
        flags += [("label", self.label), *(("without", name) for name in self.without)]
        if not self.label:
            raise ConfigurationError(f"--label: expected a column of the file ({', '.join(columns)}), found none.")
        for flag, name in flags:
            if name not in (*columns, "", "none"):
                listed = f"{', '.join(columns)}), found {name!r}{nearest(name, columns)}"
                raise ConfigurationError(f"--{flag}: expected a column of the file ({listed}.")


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


@dataclass(frozen=True)
class _Roles:
    """The role of each column; `positive` is the SQL condition after the label's name that makes a row positive."""

    label: _Column
    task: str
    positive: str
    key: _Column | None
    time: str
    label_time: str
    group: str
    features: tuple[_Column, ...]
    left_out: Mapping[str, str]


def init(
    name: Annotated[str, typer.Argument(help="Name of the project, and of the folder to create.")],
    table: Annotated[Path | None, typer.Option("--from", help="A CSV with a header, or a Parquet file.")] = None,
    label: Annotated[str, typer.Option(help="The column to predict; needed with --from.")] = "",
    task: Annotated[
        _Task, typer.Option(metavar="TASK", help="binary, multiclass or regression; default: by values.")
    ] = "",
    positive: Annotated[str, typer.Option(help="Its positive value, or a condition such as '>= 7'.")] = "",
    time: Annotated[str, typer.Option(help="The column with the time of the decision; none for no column.")] = "",
    time_zone: TimeZoneOption = "",
    key: Annotated[str, typer.Option(help="The column that identifies a row; none makes a key of its values.")] = "",
    known: Annotated[str, typer.Option(help="The column with the time at which the label is known, if any.")] = "",
    without: Annotated[list[str] | None, typer.Option(help="A column that is known with the label only.")] = None,
    group: Annotated[str, typer.Option(help="A column whose rows stay in one part of the split; no feature.")] = "",
    nulls: NullsOption = None,
    alarm: Annotated[
        float | None, typer.Option(min=0.5, max=1, help="ROC AUC above which a feature is a leak.")
    ] = None,
) -> None:
    """Write a commented starting point for a project into a new folder; with --from, one that runs on that table."""
    if table is None:
        if any((label, task, positive, time, time_zone, key, known, without, group, nulls, alarm)):
            raise ConfigurationError("Expected --from FILE, as the other options are about its columns.")
        target = create_project(name, Path.cwd())
        typer.echo(
            f"{target} is ready. Edit project.yaml, put your tables into {name}/data, then: gatehouse run {name}"
        )
        return
    flags = _Flags(label, task, positive, time, key, known, tuple(without or ()), group, alarm)
    _init_from(_new_folder(name, Path.cwd()), name, table, flags, nulls or (), time_zone)


def create_project(name: str, parent: Path) -> Path:
    """Write the template as `<parent>/<name>`; nothing is overwritten."""
    target = _new_folder(name, parent)
    with whole_or_none(target) as made:
        _fill(_TEMPLATES / "project", made, {"name": name, "feast": feast_name(name)})
    return target


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
    """Write the files of a template with their placeholders replaced; TABLE and LABEL stand for these in file names."""
    for source in sorted(path for path in template.rglob("*") if path.is_file() and "__pycache__" not in path.parts):
        written = source.relative_to(template).as_posix().removesuffix(".in")
        for placeholder in ("table", "label"):
            written = written.replace(placeholder.upper(), str(values.get(placeholder, "")))
        (target / written).parent.mkdir(parents=True, exist_ok=True)
        text = re.sub(
            r"\{(\w+)\}", lambda match: str(values.get(match[1], match[0])), source.read_text(encoding="utf-8")
        )
        (target / written).write_text(text, encoding="utf-8")


def _init_from(target: Path, name: str, file: Path, flags: _Flags, nulls: Sequence[str], time_zone: str) -> None:
    """Create a project with a copy of the file; if this fails or is killed, no folder is left."""
    from gatehouse.data.snapshot.sniffing import sniff
    from gatehouse.evaluation.spec import LEAST_TEST_ROWS

    console, table = Console(soft_wrap=True, highlight=False, markup=False), first_look.table_name(file)
    sniffed = sniff(file, nulls)
    flags.require_columns([column.name for column in sniffed.kept])
    timed = sniffed.ordered_by(_time(flags.time, sniffed))
    with whole_or_none(target) as made:
        (made / "data").mkdir()
        shutil.copy2(file, made / "data")
        store = ArtifactStore.open(made / DEFAULT_STORE)
        with contextlib.chdir(made):
            source = first_look.declared(timed, Path("data", file.name), table, time_zone)
            look = first_look.take(source, store)
        declaration = source["tables"][table]
        dataset = store.manifest(look.snapshot.snapshot).derived_from[table]
        with connect() as connection:
            connection.read_parquet([str(path) for path in store.paths(dataset)]).create_view("rows")
            columns = _columns(connection, declaration["columns"])
            rows = look.snapshot.rows[table]
            roles = _roles(flags, columns, rows, declaration["event_time"])
            labelled = rows - roles.label.missing
            shares = shares_of(labelled, LEAST_TEST_ROWS)
            split, divided = _split(connection, roles, rows, shares, bool(timed.event_time))
        values = _template_values(name, table, source, roles, flags.alarm, round(shares.train * labelled))
        _fill(_TEMPLATES / "table", made, values | {"split": split})
        (made / "contract.yaml").write_text(look.contract, encoding="utf-8")
        report = target / look.pages[0].relative_to(made)
    first_look.show(console, file, sniffed)
    lines = {
        "predicts": f"{roles.label.name} {roles.positive}".strip(),
        "task": roles.task,
        "from": ", ".join(column.name for column in roles.features),
        "key": roles.key.name if roles.key else "made of each row's values",
        "decided": roles.time,
        "label": f"known at {roles.label_time or roles.time}",
        "divided": divided,
        **{f"left out {column}": why for column, why in roles.left_out.items()},
        "report": str(report),
    }
    console.print()
    for title, text in lines.items():
        console.print(Text.assemble((f"{title:<9} ", "dim"), text))
    first_look.show_warnings(console, look, timed, table)
    parts = {part: round(share * labelled) for part, share in shares.model_dump().items()}
    if min(parts.values()) < LEAST_TEST_ROWS:
        sizes = ", ".join(f"{part} {size:,}" for part, size in parts.items())
        gate = " The gate lets no model pass on fewer test rows." if parts["test"] < LEAST_TEST_ROWS else ""
        few = f"few rows: {sizes}. Measures on fewer than {LEAST_TEST_ROWS} rows of a part are uncertain.{gate}"
        console.print(Text(few, style="yellow"))
    console.print(f"\n{target} is ready: gatehouse run {name}")


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
                cell = quoted(name)
                values = f"SELECT DISTINCT {cell} FROM rows WHERE {cell} IS NOT NULL ORDER BY 1"
                texts = connection.execute(f"SELECT {cell}::VARCHAR FROM ({values})").fetchall()
            columns[name] = _Column(name, kind, distinct, missing, infinite, largest or 0, tuple(t for (t,) in texts))
    return columns


def sql_name(column: str) -> str:
    """A name in any script that SQL accepts without quotes, and that differs from Gatehouse's own columns."""
    letters = (c if c.isalnum() or category(c)[0] == "M" else "_" for c in normalize("NFKC", column.lower()))
    name = re.sub("_+", "_", "".join(letters)).strip("_") or "column"
    name = name if name[0].isalpha() else f"c_{name}"
    return f"{name}_value" if name in _OWN_NAMES else name


def _roles(flags: _Flags, columns: Mapping[str, _Column], rows: int, time: str) -> _Roles:
    """The role of each column, from the flags, else by its values."""
    group = "" if flags.group == "none" else flags.group
    label = columns[flags.label]
    if label.name in (time, *flags.without) or label.kind == "timestamp" or label.distinct < 2:
        raise ConfigurationError(
            f"--label: expected a column of two values at least that is no time, found {label.name} with "
            f"{label.distinct:,}."
        )
    if flags.label_time and columns[flags.label_time].kind != "timestamp":
        raise ConfigurationError(f"--known: expected a column of times, found {flags.label_time}.")
    numeric = label.kind in ("int64", "double", "bool")
    if flags.positive and flags.task not in ("", "binary"):
        raise ConfigurationError(f"--positive: expected --task binary, found --task {flags.task}.")
    likely = "binary" if label.distinct == 2 or flags.positive else "regression" if numeric else "multiclass"
    task = flags.task or likely
    if task == "multiclass" and not label.texts:
        raise ConfigurationError(
            f"--task multiclass: expected a label of at most {_FEW_VALUES} values, found {label.name} with "
            f"{label.distinct:,}."
        )
    if task == "regression" and not numeric:
        raise ConfigurationError(f"--task regression: expected a column of numbers, found {label.name}.")
    positive = _positive(label, flags.positive) if task == "binary" else ""
    key = _key(flags.key, columns, rows, {label.name, time, *flags.without})
    used = {time, flags.label_time, label.name, key.name if key else ""}
    if group and (group in used or columns[group].missing):
        raise ConfigurationError(f"--group: expected a value in every row and no other role, found {group}.")
    used.add(group)
    left_out: dict[str, str] = {}
    for name, column in columns.items():
        if name in used:
            continue
        whole = column.kind in ("int64", "string")
        if name in flags.without:
            left_out[name] = "as you said"
        elif column.kind == "timestamp":
            left_out[name] = "a time: make numbers of it in staging"
        elif column.distinct < 2:
            left_out[name] = "the same value in all rows"
        elif (
            whole and column.distinct >= _SHARE_OF_KEY * rows and (column.distinct == rows or _KEY.search(name.lower()))
        ):
            left_out[name] = "looks like a key" if column.distinct < rows else "another value in every row"
        elif column.kind == "string" and column.distinct > max(_FEW_VALUES, rows / 2):
            left_out[name] = "a text that hardly repeats"
    features = tuple(column for name, column in columns.items() if name not in used and name not in left_out)
    if not features:
        listed = "; ".join(f"{name}: {why}" for name, why in left_out.items())
        raise ConfigurationError(f"Expected a column to predict {label.name} from, found none. Left out: {listed}.")
    names: dict[str, str] = {}
    for name in (*sorted(used - {""}), *(column.name for column in features)):
        if (other := names.setdefault(sql_name(name), name)) != name:
            raise ConfigurationError(
                f"the columns {other!r} and {name!r} are both called {sql_name(name)} in SQL. Rename one in the file, "
                f"or leave it out: --without {name!r}."
            )
    return _Roles(label, task, positive, key, time, flags.label_time, group, features, left_out)


def _positive(label: _Column, option: str) -> str:
    """The condition for a positive row, as SQL after the label's name; empty for a column of bools."""
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
    if option == "none":
        return None
    if option not in unique:
        raise ConfigurationError(
            f"--key: expected a column of whole numbers or texts with another value in every row "
            f"({', '.join(unique) or 'there is none'}), found {option} with {columns[option].distinct:,} values in "
            f"{rows:,} rows. With --key none a key is made of each row's values."
        )
    return columns[option]


def shares_of(rows: int, least_test_rows: int) -> "Fractions":
    """The usual shares of the parts, or a larger test part where the gate would judge no model on the usual one."""
    from gatehouse.data.splitting.spec import Fractions

    usual, enough = Fractions(), 1.25 * least_test_rows  # A hash may give a part a few rows less than its share.
    if usual.test * rows >= enough or _MOST_TEST * rows < least_test_rows:
        return usual
    test = round(min(_MOST_TEST, enough / rows), 2)
    return Fractions(train=round(1 - usual.validation - test, 2), validation=usual.validation, test=test)


def _split(
    connection: "duckdb.DuckDBPyConnection", roles: _Roles, rows: int, shares: "Fractions", timed: bool
) -> tuple[str, str]:
    """The section `split` of project.yaml, and what it says in words: by a group, by time, or by a hash."""
    from gatehouse.data.splitting.spec import Fractions

    fractions = ""
    if shares != Fractions():
        listed = ", ".join(f"{part}: {share}" for part, share in shares.model_dump().items())
        fractions = f"\n  # More rows than usual are for test, so that the gate can judge.\n  fractions: {{{listed}}}"
    complete = [column.name for column in roles.features if not column.missing]
    distinct = f"SELECT count(*) FROM (SELECT DISTINCT {', '.join(map(quoted, complete))} FROM rows)"
    if roles.group:
        comment = (
            f"All rows of one {sql_name(roles.group)} stay in one part. It is kept in the label's query, no feature."
        )
        settings = {"strategy": "group", "columns": [sql_name(roles.group)]}
        words = f"by {roles.group}, whose rows stay in one part"
    elif timed and (ends := _boundaries(connection, roles.time, shares)):
        comment = "How long before the newest decision train and validation end: so a later training learns newer rows."
        settings = {"train_until": ends[0], "validation_until": ends[1], "gap": "PT0S"}
        words, fractions = f"by time, {ends[0]} and {ends[1]} before the newest row", ""
    elif complete and 100 <= connection.execute(distinct).fetchall()[0][0] < 0.99 * rows:
        comment = (
            "Many rows are equal in all features. These stay in one part, or the test would ask what training saw."
        )
        settings = {"strategy": "group", "columns": [sql_name(name) for name in complete]}
        words = "by a hash of the features, as many rows are equal in all of them"
    else:
        comment = "By a hash of each row's key, as no times divide the rows into three parts."
        settings = {"strategy": "random" if roles.task == "regression" else "stratified"}
        words = "by a hash: no times divide the rows"
    written = textwrap.indent(yaml_text(settings), "  ")
    return f"# {comment}\nsplit:\n{written}{fractions}", words


def _boundaries(connection: "duckdb.DuckDBPyConnection", time: str, shares: "Fractions") -> tuple[str, str] | None:
    """Distance of the ends of train and validation from the newest row, in whole units, if all parts have rows."""
    moment, ends = f"epoch_us({quoted(time)})", (shares.train, round(shares.train + shares.validation, 2))
    bounds = connection.execute(
        f"SELECT min({moment}), quantile_disc({moment}, {ends[0]}), quantile_disc({moment}, {ends[1]}), max({moment}) "
        "FROM rows"
    ).fetchall()[0]
    moments = [datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=bound) for bound in bounds]
    shortest = min(later - earlier for earlier, later in itertools.pairwise(moments))
    unit = timedelta(days=1) if shortest > timedelta(days=3) else timedelta(seconds=1)
    if shortest <= unit:
        return None
    train, validation = (round((moments[-1] - end) / unit) for end in moments[1:3])
    return (f"P{train}D", f"P{validation}D") if unit.days else (f"PT{train}S", f"PT{validation}S")


def _template_values(
    name: str, table: str, source: Mapping[str, Any], roles: _Roles, alarm: float | None, train_rows: int
) -> dict[str, object]:
    """What the placeholders of the template stand for, but for `split`."""
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

    def sql(column: str) -> str:
        """A name for SQL, in quotes if it is a reserved word, such as order."""
        return quoted(column) if column in reserved else column

    def ascii_name(column: str, other: str) -> str:
        """The name of a definition, which must be ASCII."""
        return sql_name(column) if sql_name(column).isascii() else other

    label = ascii_name(roles.label.name, "outcome")
    key = ascii_name(roles.key.name, "row_key") if roles.key else "row_key"
    title = f"Predicts {roles.label.name} {roles.positive}".strip()
    columns = [roles.time, *filter(None, (roles.label_time, roles.group)), *(column.name for column in roles.features)]
    infinite = {column.name for column in (*roles.features, roles.label) if column.infinite}
    staging = []
    for column in dict.fromkeys([*([roles.key.name] if roles.key else []), roles.label.name, *columns]):
        alias = sql(key) if roles.key and column == roles.key.name else sql(sql_name(column))
        if column in infinite:
            staging.append(f"if(isfinite({quoted(column)}), {quoted(column)}, NULL) AS {alias}")
        else:
            staging.append(alias if alias in (column, quoted(column)) else f"{quoted(column)} AS {alias}")
    staging_note = " Infinite values become nulls." if infinite else ""
    if not roles.key:
        values = ", ".join(quoted(column) for column in columns if column != roles.label_time)
        digest = f"md5(row({values})::VARCHAR)"
        # In an order that does not depend on the label alone, so that the number does not tell the outcome.
        order = f"md5(concat({digest}, {quoted(roles.label.name)}))"
        staging.insert(0, f"{digest} || '-' || row_number() OVER (PARTITION BY {digest} ORDER BY {order}) AS row_key")
        staging_note += " The key is made of the row's values: equal rows are numbered."
    late = [
        f"    CASE WHEN {quoted(roles.label_time)} <= getvariable('as_of') THEN {cell} END AS {cell}"
        for cell in map(quoted, (roles.label.name, roles.label_time))
    ]
    kinds = {
        sql_name(column.name): "categorical"
        if column.kind == "string"
        else "double"
        if column.kind == "int64" and column.largest > _EXACT_IN_32_BITS
        else "numeric"
        for column in roles.features
    }
    few = (column.name for column in roles.features if column.kind == "string" and 1 < column.distinct <= _MOST_SLICES)
    sliced = next(few, "")
    time = sql(sql_name(roles.time))
    return {
        "name": name,
        "feast": feast_name(name),
        "description": json.dumps(f"{title if title.isascii() else f'Predicts {label}'}."),
        "source": textwrap.indent(yaml_text(dict(source), width=110), "  "),
        "label": label,
        "outcome": "the label" if task.has_classes else "labels above the median",
        "feature_alarm": feature_alarm,
        "loss": loss,
        "watched": watched,
        "batch": max(1, min(_LARGEST_BATCH, train_rows // _BATCHES)),
        "slice": json.dumps(sql_name(sliced)) if sliced else "",
        "objective": profile.objective,
        "alarm_metric": alarm_metric,
        "model_alarm": feature_alarm if alarm_metric == "roc_auc" else model_alarm,
        "table": table,
        "time_name": repr(roles.time),
        "key": key,
        "key_type": "int64" if roles.key and roles.key.kind == "int64" else "string",
        "features": "\n".join(f'        "{feature}": "{kind}",' for feature, kind in kinds.items()),
        "title": repr(f"{title}."),
        "task": roles.task,
        "classes": repr(roles.label.texts if roles.task == "multiclass" else ()),
        "keeps": repr((sql_name(roles.group),) if roles.group else ()),
        "staging_note": staging_note,
        "staging": ",\n    ".join(staging),
        "sql_table": sql(table),
        "raw_time": quoted(roles.time),
        "known_columns": " REPLACE (\n" + ",\n".join(late) + "\n)" if roles.label_time else "",
        "sql_key": sql(key),
        "time": time,
        "feature_columns": ", ".join(sql(sql_name(column.name)) for column in roles.features),
        "outcome_sql": f"{sql(sql_name(roles.label.name))} {roles.positive}".strip(),
        "known_at": sql(sql_name(roles.label_time)) if roles.label_time else time,
        "group_column": f", {sql(sql_name(roles.group))}" if roles.group else "",
    }
