"""`gatehouse init --from`: creates a runnable project from a user's file."""

import contextlib
import itertools
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter
from rich.console import Console
from rich.text import Text

from gatehouse.cli.first_look import (
    FirstLook,
    declared,
    show,
    table_name,
    taken,
    tell_infinite,
    tell_rejected,
    tell_repeated,
    tell_warnings,
)
from gatehouse.cli.place import DEFAULT_STORE, whole_or_none
from gatehouse.cli.table_project import project_files, write_files
from gatehouse.cli.table_roles import (
    MOST_OF_GROUP,
    Column,
    Roles,
    Wanted,
    chosen,
    facts,
    names_in,
    require_columns,
    someone_is_there,
)
from gatehouse.configuration.yaml_lines import nearest
from gatehouse.data.splitting.spec import Fractions
from gatehouse.errors import ConfigurationError
from gatehouse.evaluation.rules.enough_rows import LEAST_TEST_ROWS
from gatehouse.metrics.tasks.binary import BINARY
from gatehouse.metrics.tasks.found import TASKS
from gatehouse.runtime.counting import counted
from gatehouse.store.database import connect, quoted
from gatehouse.store.store import ArtifactStore

if TYPE_CHECKING:
    import duckdb

    from gatehouse.data.snapshot.sniffing import Sniffed

_ENOUGH, _MOST_TEST = 1.25 * LEAST_TEST_ROWS, 0.4
"""Test rows that are aimed at, as a hash may give a part a few less; and the greatest share that they may be."""
_MOST_ALIKE, _FEWEST_GROUPS = 0.01, 100
_VALUES_THAT_TELL = 3
_VALUES_COMPARED, _MOST_COMPARED = 50, 20
_UNITS = (timedelta(days=1), timedelta(hours=1), timedelta(seconds=1))
_ISO = TypeAdapter(timedelta)


def init_from(
    target: Path,
    name: str,
    file: Path,
    time: str,
    alarm: float | None,
    wanted: Wanted,
    nulls: Sequence[str] = (),
    zone: str = "",
) -> None:
    """Create a project in the folder `target`, with a copy of the file; if this fails or is killed, no folder is left.

    Raises:
        SourceError: if the file is no table.
        ConfigurationError: if a requested column does not fit, or a question cannot be asked.
    """
    from gatehouse.data.snapshot.sniffing import sniff

    console, table = Console(soft_wrap=True, highlight=False, markup=False), table_name(file)
    found = sniff(file, nulls)
    sniffed = found.ordered_by(_time(time, found))
    require_columns(wanted, [column.name for column in found.kept])
    if asked := someone_is_there():
        show(console, file, found)
    with whole_or_none(target) as made:
        (made / "data").mkdir()
        shutil.copy2(file, made / "data")
        store = ArtifactStore.open(made / DEFAULT_STORE)
        with contextlib.chdir(made):
            source = declared(sniffed, Path("data", file.name), table, zone)
            look = taken(source, Path("contract.yaml"), store, found)
        roles, boundaries, alike, sizes = _roles(
            store, look, table, source["tables"][table], wanted, bool(sniffed.event_time)
        )
        shares = shares_of(sum(sizes.values()))
        write_files(made, project_files(name, table, source, roles, boundaries or shares, alike, alarm, sizes["train"]))
        report = target / look.pages[0].relative_to(made)
    if not asked:  # Without questions, an error is the only output.
        show(console, file, found)
    _tell(console, target, name, roles, report, boundaries)
    tell_warnings(console, look)
    tell_rejected(console, look, table, sniffed, "project.yaml has", "as this file needs it")
    tell_repeated(console, found.repeated)
    infinite = {one.name: one.infinite for one in (*roles.features, roles.label) if one.infinite}
    without = f"features/staging/{table}.sql gives nulls instead"
    if roles.label.infinite:
        without += "; a row whose label is null is neither trained on nor tested"
    tell_infinite(console, infinite, without)
    for advice in _advice(roles, sizes):
        console.print(Text(advice, style="yellow"))
    console.print(f"\n{target} is ready: gatehouse run {name}")


def _time(wanted: str, sniffed: "Sniffed") -> str:
    times = [column.name for column in sniffed.kept if str(column.kind) == "timestamp"]
    if wanted in ("", "none") or wanted in times:
        return "" if wanted == "none" else wanted or sniffed.event_time
    column = next((one for one in sniffed.kept if one.name == wanted), None)
    if column and column.epoch:
        return wanted
    advice = ""
    if column and column.kind in ("int64", "double"):
        advice = f" Numbers since 1970 are read by a source with times: {{{wanted}: milliseconds}}, or seconds."
    raise ConfigurationError(
        f"--time: expected a column of times ({', '.join(times) or 'the file has none'}) or none, found "
        f"{wanted!r}{nearest(wanted, times)}.{advice}"
    )


def _roles(
    store: ArtifactStore, look: FirstLook, table: str, declared: Mapping[str, Any], wanted: Wanted, timed: bool
) -> tuple[Roles, tuple[str, str] | None, list[str], dict[str, int]]:
    """The roles of the columns; boundaries of a split by time, or None; features in which many rows agree; parts."""
    dataset = store.manifest(look.taken.snapshot).derived_from[table]
    with connect() as connection:
        connection.read_parquet([str(path) for path in store.paths(dataset)]).create_view("rows")
        found, rows = facts(lambda sql: connection.execute(sql).fetchall(), declared["columns"])
        time = str(declared["event_time"])
        roles = chosen(wanted, found, rows, time)
        if TASKS[roles.task].output == "probability":
            _refuse_one_sided(connection, roles)
        shares = shares_of(rows - roles.label.missing)
        boundaries = _boundaries(connection, time, shares) if timed and not roles.group else None
        told = {one.name: one for one in (*roles.features, roles.label)}
        repeated = names_in(roles.features, rows, lambda name: _groups_rows(connection, name, told))
        sizes = _sizes(connection, roles, boundaries, shares)
        roles = replace(roles, repeated=repeated, spelled=_spelled(connection, roles.label))
        return roles, boundaries, _alike(connection, roles, rows), sizes


def _spelled(connection: "duckdb.DuckDBPyConnection", label: Column) -> tuple[str, ...]:
    """Values of a text label, with their rows, that only case or spaces around them tell from another."""
    if label.kind != "string":
        return ()
    value = quoted(label.name)
    found = connection.execute(
        f"SELECT value, n FROM (SELECT {value} AS value, count(*) AS n FROM rows WHERE {value} IS NOT NULL GROUP BY 1) "
        "QUALIFY count(*) OVER (PARTITION BY lower(trim(value))) > 1 ORDER BY lower(trim(value)), n DESC, value LIMIT 6"
    ).fetchall()
    return tuple(f"{value!r} in {counted(rows, 'row')}" for value, rows in found)


def _groups_rows(connection: "duckdb.DuckDBPyConnection", name: str, columns: Mapping[str, Column]) -> bool:
    """Whether each value of a column occurs in 2 to 20 rows, and these always agree in another column too.

    The others are compared in the rows of a few values, and in all rows those that agree there.
    """
    key = quoted(name)
    groups = f"FROM rows WHERE {key} IS NOT NULL GROUP BY {key}"
    least, most = connection.execute(f"SELECT min(n), max(n) FROM (SELECT count(*) AS n {groups})").fetchall()[0]
    if least < 2 or most > MOST_OF_GROUP:
        return False
    # A column with one value for each of the key's has at most as many; with few, rows often agree by chance.
    others = [
        quoted(each.name)
        for each in columns.values()
        if each.name != name and _VALUES_THAT_TELL <= each.values <= columns[name].values
    ]
    few = f"SELECT {key} {groups} ORDER BY hash({key}), {key} LIMIT {_VALUES_COMPARED}"
    for rows in (f"(FROM rows WHERE {key} IN ({few}))", "rows"):
        if not others:
            return False
        agree = ", ".join(f"min({each}) = max({each}) AS c{place}" for place, each in enumerate(others))
        always = ", ".join(f"bool_and(c{place})" for place in range(len(others)))
        grouped = f"SELECT {agree} {groups.replace('FROM rows', f'FROM {rows}')}"
        found = connection.execute(f"SELECT {always} FROM ({grouped})").fetchall()[0]
        others = [each for each, same in zip(others, found, strict=True) if same][:_MOST_COMPARED]
    return bool(others)


def _refuse_one_sided(connection: "duckdb.DuckDBPyConnection", roles: Roles) -> None:
    label = quoted(roles.label.name)
    condition = f"{label} {roles.positive}"
    positive, negative = connection.execute(
        f"SELECT count(*) FILTER ({condition}), count(*) FILTER (NOT ({condition})) FROM rows"
    ).fetchall()[0]
    if not positive or not negative:
        raise ConfigurationError(
            f"--positive: expected a condition that some rows fulfil and some do not, found {condition} with "
            f"{positive:,} rows that do and {negative:,} that do not."
        )


def _alike(connection: "duckdb.DuckDBPyConnection", roles: Roles, rows: int) -> list[str]:
    """The features without missing values, if more rows repeat them than a random split may separate."""
    names = [one.name for one in roles.features if not one.missing]
    if not names:
        return []
    columns = ", ".join(map(quoted, names))
    different = connection.execute(f"SELECT count(*) FROM (SELECT DISTINCT {columns} FROM rows)").fetchall()[0][0]
    return names if _FEWEST_GROUPS <= different < (1 - _MOST_ALIKE) * rows else []


def shares_of(rows: int) -> Fractions:
    """The usual shares of the parts; but where the gate wants more test rows than these are, as many as it wants."""
    usual = Fractions()
    if usual.test * rows >= _ENOUGH or _MOST_TEST * rows < LEAST_TEST_ROWS:
        return usual
    test = round(min(_MOST_TEST, _ENOUGH / rows), 2)
    return Fractions(train=round(1 - usual.validation - test, 2), validation=usual.validation, test=test)


def _boundaries(connection: "duckdb.DuckDBPyConnection", time: str, shares: Fractions) -> tuple[str, str] | None:
    """Distance of the ends of train and validation from the newest row; whole days if every part then has rows."""
    asked, ends = f"epoch_us({quoted(time)})", (shares.train, round(shares.train + shares.validation, 2))
    first, *cuts, last = connection.execute(
        f"SELECT min({asked}), quantile_disc({asked}, {ends[0]}), quantile_disc({asked}, {ends[1]}), max({asked}) "
        "FROM rows"
    ).fetchall()[0]
    moments = [datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=each) for each in (first, *cuts, last)]
    lengths = [later - earlier for earlier, later in itertools.pairwise(moments)]
    if min(lengths) <= timedelta(0):
        return None
    unit = next((each for each in _UNITS if min(lengths) > 3 * each), timedelta(microseconds=1))
    train, validation = (round((moments[-1] - each) / unit) * unit for each in moments[1:3])
    return _written(train), _written(validation)


def _written(distance: timedelta) -> str:
    """A distance in ISO 8601, in days where it is whole days: a year of 365 days, as in P1Y73D, asks for a calendar."""
    days, rest = divmod(distance, timedelta(days=1))
    return str(_ISO.dump_python(distance, mode="json")) if rest else f"P{days}D"


def _sizes(
    connection: "duckdb.DuckDBPyConnection", roles: Roles, boundaries: tuple[str, str] | None, shares: Fractions
) -> dict[str, int]:
    """How many rows with a label each part of the split has; about so many where no times divide the rows."""
    time, label = map(quoted, (roles.time, roles.label.name))
    ages = f"SELECT max(epoch_us({time})) OVER () - epoch_us({time}) AS age, {label} AS label FROM rows"
    train, validation = (
        _ISO.validate_python(each) // timedelta(microseconds=1) for each in boundaries or ("PT0S", "PT0S")
    )
    rows, after_train, test = connection.execute(
        f"SELECT count(*), count(*) FILTER (age <= {train}), count(*) FILTER (age <= {validation}) FROM ({ages}) "
        "WHERE label IS NOT NULL"
    ).fetchall()[0]
    if not boundaries:
        after_train, test = round((1 - shares.train) * rows), round(shares.test * rows)
    return {"train": rows - after_train, "validation": after_train - test, "test": test}


def _advice(roles: Roles, sizes: Mapping[str, int]) -> Iterator[str]:
    """What a person should look at before the first run."""
    if roles.repeated:
        yield (
            f"{', '.join(roles.repeated)}: may name something that has several rows, such as a person; a feature now. "
            "--group COLUMN keeps these rows in one part and makes no feature of it, --without COLUMN leaves it out."
        )
    if roles.spelled:
        yield (
            f"{roles.label.name}: values that differ only in case or spaces are not the same value: "
            f"{', '.join(roles.spelled)}. Write them alike in the file, or in features/labels with lower(trim(...))."
        )
    if min(sizes.values()) < LEAST_TEST_ROWS:
        found = ", ".join(f"{part} {size:,}" for part, size in sizes.items())
        enough = round(LEAST_TEST_ROWS / Fractions().validation, -2)
        gate = (
            f" The gate lets no model pass on fewer than {LEAST_TEST_ROWS} test rows (least_test_rows in policy.yaml)."
        )
        yield (
            f"few rows: {found}. With fewer than {LEAST_TEST_ROWS} rows with a label in a part, what is measured on it "
            f"is uncertain, a ROC AUC by 0.1 or more. Take a table of {enough:,.0f} rows or more."
            + gate
            * (TASKS[roles.task].counted == "row" and sizes["test"] < LEAST_TEST_ROWS)
        )
    if roles.label.values == 2 and roles.task != BINARY.name:
        told = f" ({', '.join(roles.label.texts)})"
        yield f"{roles.label.name} has two values{told}, for which --task {BINARY.name} is made, not {roles.task}."


def _tell(
    console: Console, target: Path, name: str, roles: Roles, report: Path, boundaries: tuple[str, str] | None
) -> None:
    key = roles.key.name if roles.key else "made of each row's values"
    lines = {
        "predicts": f"{roles.label.name} {roles.positive}".strip(),
        "task": roles.task,
        "from": ", ".join(one.name for one in roles.features),
        "key": key,
        "decided": roles.time,
        "label": f"known at {roles.known or roles.time}",
        "divided": f"by {roles.group}, whose rows stay in one part"
        if roles.group
        else f"by time, {' and '.join(boundaries)} before the newest row"
        if boundaries
        else "by a hash: no times divide the rows",
    }
    console.print()
    for label, text in lines.items():
        console.print(Text.assemble((f"{label:<10}", "dim"), text))
    for column, why in roles.left_out.items():
        console.print(Text.assemble(("left out  ", "dim"), f"{column}: {why}"))
    console.print(Text.assemble(("report    ", "dim"), str(report)))
