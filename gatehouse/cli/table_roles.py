"""Finds the role of each column of a table: label, key, times and features; as chosen by options or by answers."""

import contextlib
import math
import re
import shlex
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast
from unicodedata import category, normalize

import typer

from gatehouse.configuration.yaml_lines import nearest
from gatehouse.errors import ConfigurationError
from gatehouse.metrics.tasks.binary import BINARY
from gatehouse.metrics.tasks.found import TASKS
from gatehouse.metrics.tasks.multiclass import MULTICLASS
from gatehouse.metrics.tasks.regression import REGRESSION
from gatehouse.metrics.tasks.task import TaskName
from gatehouse.runtime.counting import counted

_CONDITION = re.compile(r"\s*(<=|>=|<>|!=|=|<|>)\s*(.+)")
_OWN_NAMES = {"event_timestamp", "known_from", "known_at", "decision_time", "label", "label_time", "row_key"}
_KEY = re.compile(r"(^|[^a-z])(id|key|no|nr|number|uuid)$")
_ID = re.compile(r"(?i:(^|[^a-z])(id|key|uuid))$|[a-z]I[dD]$")
_FEWEST_GROUPS = 3
_OF_KEYS = ("int64", "string")
_RARELY_REPEATED = 0.5
_NEARLY_UNIQUE = 0.9
_FEW = 50
_MOST_OF_ID = 100
MOST_OF_GROUP = 20
"""The most rows that one person or thing has, where its column has no name of an id."""
_MOST_LOOKED_AT = 20
_COLUMNS_AT_ONCE = 50
_SLICES = 12
NUMERIC, TIME = ("int64", "double", "bool"), "timestamp"
_TASKS: tuple[TaskName, ...] = ("binary", "multiclass", "regression")
_OFFERED = "binary, multiclass or regression"


@dataclass(frozen=True)
class Column:
    """A column as it was found.

    Attributes:
        name: Name in the file.
        kind: The type that the source declares.
        values: Number of distinct values.
        missing: Number of missing values.
        texts: Its values as text, in order, if they are few.
        infinite: Number of infinite values.
        long: Whether 32 bits make two of its whole numbers one.
    """

    name: str
    kind: str
    values: int
    missing: int
    texts: tuple[str, ...] = ()
    infinite: int = 0
    long: bool = False


@dataclass(frozen=True)
class Wanted:
    """The options of the command line; empty for a role that is still to be chosen, `none` for no such column."""

    label: str = ""
    task: str = ""
    positive: str = ""
    key: str = ""
    known: str = ""
    without: Sequence[str] = ()
    group: str = ""


@dataclass(frozen=True)
class Roles:
    """The role of each column.

    Attributes:
        label: The column to predict.
        task: The task of the model.
        positive: For the task binary the condition, in SQL after the label's name, that makes a row positive; empty for
            a column of bools.
        key: The column that identifies a row; empty for a key made from each row's values.
        time: The column with the time of the decision.
        known: The column with the time at which the label is known; empty if that is the time of the decision.
        features: The other columns that a model may use.
        left_out: For each remaining column why it is no feature.
        group: The column whose rows stay in one part of the split; empty for none.
        repeated: Features that may name something with several rows.
        spelled: Values of the label, with their rows, that differ only in case or in spaces around them.
    """

    label: Column
    task: TaskName
    positive: str
    key: Column | None
    time: str
    known: str
    features: tuple[Column, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)
    group: str = ""
    repeated: tuple[str, ...] = ()
    spelled: tuple[str, ...] = ()

    @property
    def slice(self) -> str:
        """The first text column with few values, used for slices of metrics; empty if there is none."""
        few = (one.name for one in self.features if one.kind == "string" and 1 < one.values <= _SLICES)
        return next(few, "")


def sql_name(column: str) -> str:
    """A name in any script that SQL accepts without quotes, and that differs from Gatehouse's own columns."""
    letters = (c if c.isalnum() or category(c)[0] == "M" else "_" for c in normalize("NFKC", column.lower()))
    name = re.sub("_+", "_", "".join(letters)).strip("_") or "column"
    name = name if name[0].isalpha() else f"c_{name}"
    return f"{name}_value" if name in _OWN_NAMES else name


def chosen(wanted: Wanted, columns: Mapping[str, Column], rows: int, time: str) -> Roles:
    """Find the role of each column: from the options, otherwise by asking the user or by guessing.

    Args:
        wanted: The options.
        columns: The columns of the table by name.
        rows: Number of rows.
        time: The column with the time of the decision.

    Raises:
        ConfigurationError: if a column does not exist or does not fit, or a question cannot be asked.
    """
    require_columns(wanted, columns)
    grouped = "" if wanted.group == "none" else wanted.group
    if wanted.known and columns[wanted.known].kind != TIME:
        raise ConfigurationError(f"--known: expected a column of times, found {wanted.known}.")
    label = _label(wanted.label, columns, {time, *wanted.without})
    task = _task(label, wanted)
    positive = _positive(label, wanted.positive) if TASKS[task].output == "probability" else ""
    key = _key(wanted.key, columns, rows, {label.name, time, *wanted.without})
    used = {time, wanted.known, label.name, key.name if key else ""}
    if grouped:
        _require_group(columns[grouped], used)
        used.add(grouped)
    left_out: dict[str, str] = {}
    for name, column in columns.items():
        if name not in used and (why := _unfit(column, rows, wanted.without)):
            left_out[name] = why
    features = tuple(one for name, one in columns.items() if name not in used and name not in left_out)
    if not features:
        listed = "; ".join(f"{name}: {why}" for name, why in left_out.items())
        raise ConfigurationError(
            f"expected a column to predict {label.name} from, found none beside key and times"
            f"{f', as these are left out: {listed}' if listed else ''}."
        )
    _refuse_equal([*sorted(used - {""}), *(one.name for one in features)])
    return Roles(label, task, positive, key, time, wanted.known, features, left_out, grouped)


def _require_group(column: Column, used: Collection[str]) -> None:
    if column.name in used or column.kind == TIME or column.missing or column.values < _FEWEST_GROUPS:
        raise ConfigurationError(
            f"--group: expected a column of {_FEWEST_GROUPS} values at least, one in every row, no time, key or "
            f"label, found {column.name} with {column.values:,} values, missing in {column.missing:,} rows."
        )


def names_in(features: Sequence[Column], rows: int, groups_rows: Callable[[str], bool]) -> tuple[str, ...]:
    """Features that may name something with several rows each, such as a person.

    They have at least 50 distinct whole numbers or texts. Either the name is that of an id, with at most 100 rows per
    value (more suggest a repeated category, such as a shop). Or each value has 2 to 20 rows that agree in another
    column too, such as the age; of a wide table the first 20 columns that may be so are looked at, texts first.

    Args:
        features: The features.
        rows: Number of rows.
        groups_rows: Whether each value of a column has a few rows that agree in another column.
    """
    whole = [one for one in features if one.kind in _OF_KEYS and _FEW <= one.values < rows]
    found = {one.name for one in whole if _ID.search(one.name) and rows <= _MOST_OF_ID * one.values}
    others = [one for one in whole if one.name not in found and _in_few_rows(one, rows)]
    likely = sorted(others, key=lambda one: one.kind != "string")[:_MOST_LOOKED_AT]
    found |= {one.name for one in likely if groups_rows(one.name)}
    return tuple(one.name for one in whole if one.name in found)


def _in_few_rows(column: Column, rows: int) -> bool:
    """Whether a value has 2 to 20 rows in the mean."""
    return 2 * column.values <= rows - column.missing <= MOST_OF_GROUP * column.values


def _refuse_equal(names: Sequence[str]) -> None:
    seen: dict[str, str] = {}
    for name in names:
        if (other := seen.setdefault(sql_name(name), name)) != name:
            raise ConfigurationError(
                f"the columns {other!r} and {name!r} are both called {sql_name(name)} in SQL. Rename one in the file, "
                f"or leave it out: --without {name!r}."
            )


def _unfit(column: Column, rows: int, without: Sequence[str]) -> str:
    """Why a column is no feature; empty if it may be one."""
    if column.name in without:
        return "as you said"
    if column.kind == TIME:
        return "a time: make numbers of it in staging"
    if column.values < 2:
        return "the same value in all rows" if column.values else "no value in any row"
    if column.values == rows and column.kind in _OF_KEYS:
        return "another value in every row"
    if column.kind in _OF_KEYS and _KEY.search(column.name.lower()) and column.values >= _NEARLY_UNIQUE * rows:
        again = rows - column.values - column.missing
        flaws = [f"is missing in {counted(column.missing, 'row')}"] * bool(column.missing)
        flaws += [f"repeats in {counted(again, 'row')}"] * bool(again)
        told = f"would tell rows apart, but it {' and '.join(flaws)}"
        return f"{told}: once these are gone, --key {shlex.quote(column.name)}"
    if column.kind == "string" and column.values > max(_FEW, _RARELY_REPEATED * rows):
        return "a text that hardly repeats"
    return ""


def require_columns(wanted: Wanted, names: Collection[str]) -> None:
    """Refuse options that name no column of the file.

    Raises:
        ConfigurationError: naming the option.
    """
    single = {"label": wanted.label, "key": "" if wanted.key == "none" else wanted.key, "known": wanted.known}
    single["group"] = "" if wanted.group == "none" else wanted.group
    for option, name in (*single.items(), *(("without", name) for name in wanted.without)):
        if name and name not in names:
            raise _no_column(option, name, names)


def _no_column(option: str, name: str, names: Collection[str]) -> ConfigurationError:
    known = ", ".join(names)
    return ConfigurationError(
        f"--{option}: expected a column of the file ({known}), found {name!r}{nearest(name, names)}."
    )


def _column(option: str, name: str, columns: Mapping[str, Column]) -> Column:
    if name not in columns:  # given by the user
        raise _no_column(option, name, columns)
    return columns[name]


def _label(wanted: str, columns: Mapping[str, Column], taken: set[str]) -> Column:
    likely = [name for name, one in columns.items() if one.values == 2 and one.kind != TIME and name not in taken]
    offered = f" ({', '.join(likely)})" if likely else ""
    name = wanted or _ask(f"Which column is to be predicted{offered}", likely[-1] if likely else "", "--label")
    column = _column("label", name, columns)
    if name in taken or column.kind == TIME or column.values < 2:
        raise ConfigurationError(
            f"--label: expected a column with two values at least, which is no time{offered}, found {name}, "
            f"{_why_no_label(column)}."
        )
    return column


def _why_no_label(column: Column) -> str:
    if column.kind == TIME:
        return "a time"
    if column.values < 2:
        return f"which has {'one value in all rows' if column.values else 'no value in any row'}"
    return "which --without leaves out"


def _task(label: Column, wanted: Wanted) -> TaskName:
    """The task: from the options, from a label with two values, or from the user's answer."""
    if wanted.positive and wanted.task not in ("", BINARY.name):
        raise ConfigurationError(f"--positive: expected --task {BINARY.name}, found --task {wanted.task}.")
    two = label.values == 2 or label.kind == "bool"
    likely = REGRESSION if label.kind in NUMERIC and not label.texts else MULTICLASS
    question = f"Which task is it to predict {label.name} ({_OFFERED})"
    said = wanted.task or (BINARY.name if two or wanted.positive else _ask(question, likely.name, "--task"))
    found = next((name for name in _TASKS if name == said), None)
    if found is None:
        raise ConfigurationError(f"--task: expected {_OFFERED}, found {said!r}.")
    if TASKS[found].output == "probabilities" and not label.texts:
        raise ConfigurationError(
            f"--task {found}: expected a label of at most {_FEW} different values, found {label.name} with "
            f"{label.values:,}."
        )
    if TASKS[found].output == "prediction" and label.kind not in NUMERIC:
        raise ConfigurationError(f"--task {found}: expected a column of numbers, found {label.name}.")
    return found


def _positive(label: Column, wanted: str) -> str:
    """The condition for a positive row, as SQL after the label's name."""
    both = label.texts if label.values == 2 else ()
    if label.kind == "bool" and wanted in ("", "true", "false"):
        return "= false" if wanted == "false" else ""
    if both in (("0", "1"), ("0.0", "1.0")) and not wanted:
        return "= 1"
    if both:
        question, proposed = f"Which value of {label.name} counts as positive ({', '.join(both)})", both[1]
    else:
        question, proposed = f"Which values of {label.name} count as positive (a value, or such as >= 7)", ""
    said = wanted or _ask(question, proposed, "--positive")
    condition = None if said in both else _CONDITION.fullmatch(said)
    sign, value = (condition[1], condition[2]) if condition else ("=", said)
    if both and not condition and said not in both:
        raise ConfigurationError(f"--positive: expected {' or '.join(both)}, found {said!r}.")
    if label.kind == "bool":
        raise ConfigurationError(f"--positive: expected true or false, found {said!r}.")
    if label.kind == "string":
        escaped = value.strip("'").replace("'", "''")
        return f"{sign} '{escaped}'"
    with contextlib.suppress(ValueError):
        if math.isfinite(float(value)):
            return f"{sign} {value}"
    raise ConfigurationError(f"--positive: expected a number or such as >= 7, found {said!r}.")


def _key(wanted: str, columns: Mapping[str, Column], rows: int, taken: set[str]) -> Column | None:
    """The column that identifies a row; None if a key is made from each row's values."""
    unique = [
        name
        for name, one in columns.items()
        if one.values == rows and not one.missing and one.kind in _OF_KEYS and name not in taken
    ]
    if not wanted:
        first = next((name for name in columns if name not in taken), "")
        named = next((name for name in unique if _KEY.search(name.lower()) or name == first), "")
        asked = unique and someone_is_there()
        question = f"Which column tells rows apart ({', '.join(unique)}, or none)"
        wanted = _ask(question, named or "none", "--key") if asked else named or "none"
    if wanted == "none":
        return None
    column = _column("key", wanted, columns)
    if wanted not in unique:
        raise ConfigurationError(
            f"--key: expected a column of whole numbers or texts with another value in every row"
            f"{f' ({chr(44).join(unique)})' if unique else ''}, found {wanted} with {column.values:,} values in "
            f"{rows:,} rows. With --key none a key is made of each row's values."
        )
    return column


def someone_is_there() -> bool:
    """Whether a person can answer questions here."""
    return sys.stdin.isatty()


def _ask(question: str, proposed: str, option: str) -> str:
    """The user's answer; if nobody can be asked, an error that names the option."""
    if not someone_is_there():
        raise ConfigurationError(
            f"{option}: {question[0].lower()}{question[1:]}? There is no terminal to ask in: give it."
        )
    answer: str = typer.prompt(question, default=proposed or None)
    return answer.strip()


def facts(query: Callable[[str], list[tuple[object, ...]]], kinds: Mapping[str, str]) -> tuple[dict[str, Column], int]:
    """Facts about the columns of a table, and its number of rows.

    Args:
        query: Runs SQL over the table `rows`.
        kinds: The declared type of every column.
    """
    found, infinite = {}, infinite_values(query, kinds)
    rows = int(str(query("SELECT count(*) FROM rows")[0][0]))
    for start in range(0, len(kinds), _COLUMNS_AT_ONCE):
        names = list(kinds)[start : start + _COLUMNS_AT_ONCE]
        quoted = {name: '"' + name.replace('"', '""') + '"' for name in names}
        single = {name: f"{each}::FLOAT" if kinds[name] == "int64" else each for name, each in quoted.items()}
        counted = ", ".join(
            f"count(DISTINCT {each}), count({each}), count(DISTINCT {single[name]})" for name, each in quoted.items()
        )
        counts = iter(map(int, map(str, query(f"SELECT {counted} FROM rows")[0])))
        sizes = {name: (next(counts), rows - next(counts), next(counts)) for name in names}
        few = [name for name in names if 1 < sizes[name][0] <= _FEW]
        listed = ", ".join(
            f"list_transform(list_sort(list(DISTINCT {each}) FILTER ({each} IS NOT NULL)), lambda v: v::VARCHAR)"
            for each in (quoted[name] for name in few)
        )
        texts = dict(zip(few, query(f"SELECT {listed} FROM rows")[0], strict=True)) if few else {}
        for name in names:
            shown = tuple(cast("list[str]", texts.get(name, [])))
            values, missing, singles = sizes[name]
            found[name] = Column(
                name, kinds[name], values, missing, shown, infinite.get(name, 0), long=singles < values
            )
    return found, rows


def infinite_values(query: Callable[[str], list[tuple[object, ...]]], kinds: Mapping[str, str]) -> dict[str, int]:
    """How many values are infinite, by the names of the columns that have any; `query` and `kinds` as for `facts`."""
    doubles = [name for name, kind in kinds.items() if kind == "double"]
    if not doubles:
        return {}
    found = dict[str, int]()
    for start in range(0, len(doubles), _COLUMNS_AT_ONCE):
        some = doubles[start : start + _COLUMNS_AT_ONCE]
        asked = ('count(*) FILTER (isinf("' + name.replace('"', '""') + '"))' for name in some)
        counts = query(f"SELECT {', '.join(asked)} FROM rows")[0]
        found |= {name: count for name, each in zip(some, counts, strict=True) if (count := int(str(each)))}
    return found
