"""The data contract: rules on the tables and columns of a snapshot, each with its severity and owner."""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar

from pydantic import (
    BeforeValidator,
    Field,
    PlainSerializer,
    PlainValidator,
    PrivateAttr,
    ValidationError,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from gatehouse.configuration.strict import Duration, Strict
from gatehouse.errors import ConfigurationError
from gatehouse.store.canonical import canonical_json
from gatehouse.store.identity import identity_of
from gatehouse.store.parameters import checked
from gatehouse.store.store import ArtifactStore

Severity = Literal["fail", "warn"]
Problem = tuple[tuple[int | str, ...], str, Any]
"""The place, the message and the value of a mistake in a contract."""
ColumnType = Literal["int64", "double", "string", "bool", "timestamp"]
T = TypeVar("T")

_NUMERIC = ("int64", "double")
_INT64 = range(-(2**63), 2**63)
_ON_TEXTS = ("pattern", "min_length", "max_length")
_AGAINST_A_BASELINE = ("mean_shift", "spread_ratio", "psi", "kl", "linf", "js")
_NAMES_GROUPS = "an evaluation names the groups of a protected column, and no value of a sensitive one may be shown"
_PAIRS = (("min", "max"), ("min_length", "max_length"), ("min_distinct_share", "max_distinct_share"))
_TEXT = re.compile(r"'(?:[^']|'')*'")
_VOLATILE = re.compile(
    # What DuckDB calls volatile or constant within one query only, and the words of SQL for the same; age() with one
    # argument counts from today.
    r"\b(?:now|today|random|setseed|uuid|uuidv4|uuidv7|gen_random_uuid|get_current_time(?:stamp)?|transaction_timestamp"
    r"|current_\w+|currval|nextval|setval|txid_current|in_search_path|getvariable|error|sleep_ms|stats|vector_type"
    r"|write_log)\s*\(|\bage\s*\([^,()]*(?:\([^()]*\)[^,()]*)*\)"
    r"|\bcurrent_(?:date|time|timestamp|localtime|localtimestamp)\b|\blocaltime(?:stamp)?\b",
    re.IGNORECASE,
)
# Look-around, atomic groups, conditions and references back to a group; a backslash before is an escape of its own.
_NOT_IN_RE2 = re.compile(r"(?<!\\)(?:\\\\)*(?:\(\?(?:[=!>(]|<[=!]|P=)|\\[1-9])")


def _bound(value: Any) -> int | float | datetime:
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise ValueError("expected a number, or a time in ISO 8601") from None
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError("expected a finite number, or a time in ISO 8601")
    return value


def _regular(pattern: Any) -> str:
    if not isinstance(pattern, str):
        raise ValueError("expected a regular expression as text")
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"expected a regular expression: {error}") from None
    if unknown := _NOT_IN_RE2.search(pattern):
        raise ValueError(f"{unknown[0]!r} is not known to RE2, which judges patterns in linear time; write it without")
    return pattern


def _repeatable(sql: Any) -> str:
    """An expression that gives the same on every run, with matching parentheses, because rules put it inside a pair."""
    if not isinstance(sql, str) or not sql.strip():
        raise ValueError("expected a SQL expression")
    bare, depth = _TEXT.sub("''", sql), 0
    for letter in bare:
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if depth < 0 or letter == ";":
            break
    if depth or ";" in bare:
        raise ValueError("expected one SQL expression, found parentheses that do not match, or a semicolon")
    if volatile := _VOLATILE.search(bare):
        raise ValueError(f"{volatile[0].strip()!r} differs from run to run; judge age by `freshness`, against as_of")
    return sql


Bound = Annotated[
    int | float | datetime,
    PlainValidator(_bound),
    PlainSerializer(lambda value: value),  # by its type: pydantic warns of a time that it tried as a number first
]
Pattern = Annotated[str, PlainValidator(_regular)]
Sql = Annotated[str, PlainValidator(_repeatable)]
Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0)]
Values = Annotated[tuple[str | int | bool, ...], Field(min_length=1)]
Names = Annotated[tuple[str, ...], Field(min_length=1)]


class Part(Strict):
    """Base of everything in a contract.

    It is no `Spec`, because a request names a contract by its reference. A default is in the code digest.
    """


class Graded(Part):
    """A promise of several keys, with its own severity and owner."""

    severity: Severity = Field("fail", description="Whether a breach fails the contract or is only reported.")
    owner: str = Field("", description="Whom to ask if it is broken; empty for the table's owner.")


class Rule(Part, Generic[T]):
    """One promise: `max: 3`, or graded, `max: {value: 3, severity: warn, owner: ops}`."""

    value: T
    severity: Severity | None = Field(None, description="Default: warn under `warn`, else fail.")
    owner: str = Field("", description="Whom to ask if it is broken; empty for the column's or table's owner.")

    @model_validator(mode="before")
    @classmethod
    def _bare(cls, body: Any) -> Any:
        return body if isinstance(body, (dict, Rule)) else {"value": body}


class Listed(Graded):
    """A promise that may be written as a list of columns, or as a mapping that has the list under `of_list`."""

    of_list: ClassVar[str]

    @model_validator(mode="before")
    @classmethod
    def _bare(cls, body: Any) -> Any:
        if isinstance(body, str):
            raise ValueError(f"expected a list of columns, found {body!r}; write [{body}]")
        return {cls.of_list: body} if isinstance(body, (list, tuple)) else body


def refuse(title: str, problems: Iterable[Problem]) -> None:
    """Raise a pydantic `ValidationError` with every problem at its place; do nothing if there are none."""
    details = [
        InitErrorDetails(
            type=PydanticCustomError("impossible", "{message}", {"message": message}), loc=place, input=value
        )
        for place, message, value in problems
    ]
    if details:
        raise ValidationError.from_exception_data(title, details)


@dataclass(frozen=True)
class GradedRule:
    """One rule of a column: its label (the key, with `warn.` in front if it is there), value and grade."""

    label: str
    key: str
    value: Any
    severity: Severity
    owner: str


class ColumnRules(Part):
    """Rules on the values of one column. Nulls keep every rule but `completeness`; NaN breaks `min` and `max`.

    Each is written as its value, or as a mapping of value, severity and owner. The rules against a baseline
    (`mean_shift` to `js`) are not judged without one.
    """

    completeness: Rule[Share] | None = Field(None, description="Least share of rows that are not null.")
    min: Rule[Bound] | None = Field(None, description="Least value, inclusive: a number, or a time for a timestamp.")
    max: Rule[Bound] | None = Field(None, description="Greatest value, inclusive.")
    allowed: Rule[Values] | None = Field(None, description="The only values that are allowed.")
    pattern: Rule[Pattern] | None = Field(None, description="Regular expression (RE2) that the whole text must match.")
    min_length: Rule[Count] | None = Field(None, description="Least number of characters of a text.")
    max_length: Rule[Count] | None = Field(None, description="Greatest number of characters of a text.")
    unique: Rule[bool] | None = Field(None, description="No value twice; nulls do not count.")
    min_distinct_share: Rule[Share] | None = Field(
        None, description="Smallest number of different values, as a share of the values that are not null."
    )
    max_distinct_share: Rule[Share] | None = Field(None, description="Largest share of different values.")
    mean_shift: Rule[Positive] | None = Field(
        None, description="Greatest distance of the mean from the baseline's, in the baseline's standard deviations."
    )
    spread_ratio: Rule[Annotated[float, Field(ge=1, allow_inf_nan=False)]] | None = Field(
        None,
        description="Largest ratio of the standard deviations of this snapshot and the baseline, the larger "
        "divided by the smaller.",
    )
    psi: Rule[Positive] | None = Field(None, description="Greatest population stability index against the baseline.")
    kl: Rule[Positive] | None = Field(
        None, description="Greatest Kullback-Leibler divergence from the baseline, in nats."
    )
    linf: Rule[Annotated[float, Field(gt=0, le=1)]] | None = Field(
        None, description="Greatest change of the share of any one bin or value (L-infinity distance)."
    )
    js: Rule[Annotated[float, Field(gt=0, le=1)]] | None = Field(
        None, description="Greatest Jensen-Shannon divergence from the baseline, in bits."
    )

    def stated(self) -> Iterator[tuple[str, Rule[Any]]]:
        """The rules that the contract states, by key, in the order of this class."""
        for key in ColumnRules.model_fields:
            rule = getattr(self, key)
            if rule is not None and rule.value is not False:
                yield key, rule


class ColumnContract(ColumnRules):
    """The contract of one column. Rules under `warn` are judged too, but cannot break the contract."""

    type: Rule[ColumnType] = Field(
        description="Type of the column. The severity of this rule is also that of a missing column."
    )
    nullable: Rule[bool] = Field(Rule(value=True), description="Whether any value may be null.")
    sensitive: bool = Field(False, description="Show no value of it in anomalies, statistics or reports.")
    protected: bool = Field(
        False, description="Models must treat its values equally: evaluations measure fairness by this column."
    )
    warn: ColumnRules | None = Field(
        None, description="Rules whose breach is reported and does not break the contract."
    )
    owner: str = Field("", description="Whom to ask if a rule of it is broken; empty for the table's owner.")

    @model_validator(mode="after")
    def _possible(self) -> "ColumnContract":
        refuse("column", _column_problems(self))
        return self

    def graded(self) -> Iterator[GradedRule]:
        """Every rule on values: first the rules whose breach fails, then the rules under `warn`."""
        if not self.nullable.value:
            yield GradedRule("nullable", "nullable", False, self.nullable.severity or "fail", self.nullable.owner)
        for key, rule in self.stated():
            yield GradedRule(key, key, rule.value, rule.severity or "fail", rule.owner)
        for key, rule in self.warn.stated() if self.warn else ():
            yield GradedRule(f"warn.{key}", key, rule.value, "warn", rule.owner)


def _column_problems(column: ColumnContract) -> Iterator[Problem]:
    """Rules that do not fit the type of the column, or that no value keeps."""
    rules = {rule.label: rule for rule in column.graded()}
    for label, rule in rules.items():
        if why := _unsuited(rule, column.type.value, column.sensitive):
            yield tuple(label.split(".")), why, rule.value
    for key, stated in column.warn.stated() if column.warn else ():
        if stated.severity == "fail":
            yield ("warn", key, "severity"), "is under `warn`; move the rule up, or leave `severity` out", "fail"
    for low, high in _PAIRS:
        for place in ("", "warn."):
            if (least := rules.get(place + low)) and (greatest := rules.get(place + high)):
                yield from reversed_bounds(least.label, least.value, greatest.value)
    if column.protected and column.sensitive:
        yield ("protected",), _NAMES_GROUPS, True
    if "nullable" in rules and column.completeness is not None:
        message = "says nothing beside nullable: false; keep one of the two"
        yield ("completeness",), message, column.completeness.value


def _unsuited_if_sensitive(column: ColumnContract) -> Iterator[tuple[str, str]]:
    """The label and the reason of every rule that a sensitive column cannot have."""
    for rule in column.graded():
        if why := _unsuited(rule, column.type.value, sensitive=True):
            yield rule.label, why
    if column.protected:
        yield "protected", _NAMES_GROUPS


def _unsuited(rule: GradedRule, kind: str, sensitive: bool) -> str:
    """Why a column of this type cannot have a rule; empty if it can."""
    key, value = rule.key, rule.value
    if key in ("min", "max"):
        if isinstance(value, datetime) != (kind == "timestamp") or kind not in (*_NUMERIC, "timestamp"):
            return f"{value!r} cannot bound a column of type {kind}"
        if kind == "int64" and not _INT64.start <= value < _INT64.stop:
            return f"{value!r} is outside of int64"
    if key in _ON_TEXTS and kind != "string":
        return f"expected a column of type string, found {kind}"
    if key == "allowed":
        types: dict[str, type] = {"string": str, "int64": int, "bool": bool}
        wrong = [item for item in value if kind not in types or type(item) is not types[kind]]
        return f"{wrong!r} cannot be values of a column of type {kind}" if wrong else ""
    if key in _AGAINST_A_BASELINE:
        if sensitive:
            return "needs a histogram or moments, and none is kept of a sensitive column"
        if kind == "timestamp":
            return "a timestamp moves on by nature; expected another type"
        if key in ("mean_shift", "spread_ratio") and kind not in _NUMERIC:
            return f"expected a numeric column, found {kind}"
    return ""


def reversed_bounds(label: str, least: Any, greatest: Any) -> Iterator[Problem]:
    """The problem of a lower bound, such as `warn.min_length`, above the upper one."""
    if isinstance(least, datetime) == isinstance(greatest, datetime) and least > greatest:
        low = label.removeprefix("warn.")
        expected = f"expected {low} <= {low.replace('min', 'max')}, found {least} > {greatest}"
        yield tuple(label.split(".")), expected, least


CONTRACT_FILE = "contract.json"
"""The file of a published contract."""
NOT_GIVEN = "not given"
"""The snapshot of a foreign key that leads to a table which nobody gave, so that it cannot be judged."""


class Freshness(Graded):
    """The newest value of a column may be at most `within` older than the snapshot's `as_of`.

    `as_of` is the newest time of all tables, so this rule finds a table that fell behind the others. Whether the whole
    source stands still is judged against the clock, by the guard `stale_after` of the source.
    """

    column: str = Field(description="A timestamp column of the table.")
    within: Duration = Field(ge=timedelta(0), description="ISO 8601 duration, e.g. P2D or PT6H.")


class Expression(Graded):
    """A SQL expression over the columns of one row. A row where it is null keeps it, as in SQL."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$", description="What the anomaly is called.")
    sql: Sql = Field(description="True for a row that keeps it; must not differ from run to run.")
    tolerance: float = Field(0.0, ge=0, lt=1, description="Share of rows that may break it.")


class Key(Listed):
    """Columns whose values no two rows share; a null counts as a value. Written as a list, or graded."""

    of_list = "columns"

    columns: Names


def _keys(keys: Any) -> Any:
    """Refuse a plain list of columns, which may mean that each is unique, or all together."""
    if isinstance(keys, list | tuple) and keys and all(isinstance(column, str) for column in keys):
        listed = ", ".join(keys)
        raise ValueError(f"expected lists of columns, found [{listed}]; write [[{listed}]] for all together")
    return keys


class Ordering(Listed):
    """The order of rows, by the first column, then the next. Pairs of rows with a null are left out."""

    of_list = "by"

    by: Names
    descending: bool = False
    strictly: bool = Field(False, description="Whether two rows in sequence must differ.")


class ForeignKey(Graded):
    """Values of `columns` must be in columns `to` of another table; a row with a null keeps the rule."""

    columns: Names = Field(description="Columns of this table.")
    table: str = Field(description="The other table.")
    to: tuple[str, ...] = Field((), description="Columns of that table; empty for the same names.")
    snapshot: str = Field(
        "", description="Another snapshot: its reference, or its name in the request; empty for this snapshot."
    )
    tolerance: float = Field(0.0, ge=0, lt=1, description="Share of rows that may have no match.")

    @model_validator(mode="after")
    def _as_many(self) -> "ForeignKey":
        if self.to and len(self.to) != len(self.columns):
            raise ValueError(f"to: expected {len(self.columns)} columns, as many as in `columns`, found {len(self.to)}")
        return self


class TableContract(Part):
    """The contract of one table."""

    owner: str = Field("", description="Whom to ask if one of its rules is broken; empty for the contract's owner.")
    description: str = Field("", description="What a row of it stands for.")
    min_rows: Rule[Count] = Field(Rule(value=1), description="Least number of rows.")
    max_rows: Rule[Count] | None = Field(None, description="Greatest number of rows.")
    min_rows_ratio: Rule[Positive] | None = Field(
        None, description="Smallest number of rows, as a factor of the baseline's."
    )
    max_rows_ratio: Rule[Positive] | None = Field(
        None, description="Largest number of rows, as a factor of the baseline's."
    )
    columns: dict[str, ColumnContract] = Field(min_length=1, description="Promises by column.")
    extra_columns: Literal["fail", "warn", "allow"] = Field("warn", description="For columns that are not listed.")
    unique: Annotated[tuple[Key, ...], BeforeValidator(_keys)] = Field(
        (), description="Sets of columns that together are unique in each row."
    )
    ordered: Ordering | None = Field(None, description="The order of the rows.")
    freshness: Freshness | None = Field(None, description="How old the newest row may be.")
    expressions: tuple[Expression, ...] = Field((), description="Rules over the columns of one row.")
    foreign_keys: tuple[ForeignKey, ...] = Field((), description="Values that must be found in another table.")

    @model_validator(mode="after")
    def _possible(self) -> "TableContract":
        refuse("table", _table_problems(self))
        return self


def _table_problems(table: TableContract) -> Iterator[Problem]:
    """Impossible row counts; freshness of a column that is no timestamp; columns that the table does not list."""
    for low, high in (("min_rows", "max_rows"), ("min_rows_ratio", "max_rows_ratio")):
        least, greatest = getattr(table, low), getattr(table, high)
        if least is not None and greatest is not None:
            yield from reversed_bounds(low, least.value, greatest.value)
    used: list[tuple[tuple[int | str, ...], tuple[str, ...]]] = [
        *((("unique", index), key.columns) for index, key in enumerate(table.unique)),
        *((("foreign_keys", index, "columns"), key.columns) for index, key in enumerate(table.foreign_keys)),
    ]
    if table.ordered is not None:
        used.append((("ordered",), table.ordered.by))
    if table.freshness is not None:
        column = table.freshness.column
        used.append((("freshness", "column"), (column,)))
        if column in table.columns and table.columns[column].type.value != "timestamp":
            yield ("freshness", "column"), f"expected a timestamp column, found {column!r}", column
    for place, columns in used:
        for column in columns:
            if column not in table.columns:
                yield place, f"the table lists no column {column!r}", column
    names = [expression.name for expression in table.expressions]
    for index, name in enumerate(names):
        if name in names[:index]:
            yield ("expressions", index, "name"), "expected different names", name


class Contract(Part):
    """A versioned contract over the tables of a snapshot."""

    version: int = Field(ge=1, description="Raised by the team whenever a rule changes.")
    description: str = Field("", description="What the tables are.")
    owner: str = Field("", description="Whom to ask if neither rule, column nor table has an owner.")
    metadata: dict[str, str] = Field({}, description="Anything else that a reader should know; no rule uses it.")
    examples: int = Field(5, ge=0, le=20, description="Largest number of rows that an anomaly shows as examples.")
    require_judged: bool = Field(False, description="Whether a rule that cannot be judged counts as broken.")
    tables: dict[str, TableContract] = Field(min_length=1, description="Promises by table.")
    _declared: dict[str, frozenset[str]] = PrivateAttr(default_factory=dict)

    @model_validator(mode="after")
    def _keys_lead_somewhere(self) -> "Contract":
        problems: list[Problem] = []
        for name, table in self.tables.items():
            for index, key in enumerate(table.foreign_keys):
                place = ("tables", name, "foreign_keys", index)
                if key.snapshot:
                    continue
                if key.table not in self.tables:
                    problems.append(((*place, "table"), f"the contract has no table {key.table!r}", key.table))
                    continue
                for column in key.to or key.columns:
                    if column not in self.tables[key.table].columns:
                        to = (*place, "to" if key.to else "columns")
                        problems.append((to, f"the table {key.table} lists no column {column!r}", column))
        refuse("Contract", problems)
        return self

    def hiding(self, declared: Mapping[str, frozenset[str]]) -> "Contract":
        """This contract with the columns that the source declares sensitive, by table, hidden too.

        Raises ConfigurationError if a rule on such a column needs a histogram or moments.
        """
        if problems := list(self.unsuited(declared)):
            listed = "".join(f"\n  - {problem}" for problem in problems)
            raise ConfigurationError(
                "Some rules of the contract need a histogram or moments of columns that the source declares sensitive. "
                f"Remove them:{listed}"
            )
        hiding = self.model_copy()
        hiding._declared = {table: columns for table, columns in declared.items() if columns}
        return hiding

    def unsuited(self, declared: Mapping[str, frozenset[str]]) -> Iterator[str]:
        """Rules that need a histogram or moments of columns that the source declares sensitive, by table."""
        for table, columns in declared.items():
            promised = self.tables[table].columns if table in self.tables else {}
            for column in (name for name in promised if name in columns):
                for label, why in _unsuited_if_sensitive(promised[column]):
                    yield f"tables.{table}.columns.{column}.{label}: {why}"

    def snapshots(self) -> tuple[str, ...]:
        """The other snapshots that foreign keys name."""
        keys = (key for table in self.tables.values() for key in table.foreign_keys)
        return tuple(sorted({key.snapshot for key in keys if key.snapshot}))

    def protected(self) -> dict[str, str]:
        """The columns by which fairness is measured, each with a table that has it."""
        return {
            column: table
            for table, promised in self.tables.items()
            for column, rules in promised.columns.items()
            if rules.protected
        }

    def sensitive(self, table: str, present: Iterable[str] = ()) -> frozenset[str]:
        """The columns of a table of which no value may be shown.

        If there are any, columns of `present` that the contract does not list are hidden too, because a sensitive
        column may have been renamed. The same holds for tables that the contract does not list.
        """
        declared = self._declared.get(table, frozenset())
        if table not in self.tables:
            return frozenset(present) if any(self.sensitive(other) for other in self.tables) else declared
        columns = self.tables[table].columns
        flagged = declared.union(column for column, promised in columns.items() if promised.sensitive)
        return flagged | (frozenset(present) - columns.keys()) if flagged else flagged


def parse_contract(text: str) -> Contract:
    """Read a contract that a person wrote, in YAML.

    Raises ConfigurationError listing every problem at once, each with file, line and path of the key.
    """
    return checked("contract.yaml", Contract, text)


def contract_text(contract: Contract) -> str:
    """The rules of a contract as canonical JSON, to be published as `CONTRACT_FILE`.

    Descriptions and metadata are left out; comments, layout and order of keys change nothing.
    """
    tables = {name: table.model_copy(update={"description": ""}) for name, table in contract.tables.items()}
    return canonical_json(
        identity_of(contract.model_copy(update={"description": "", "metadata": {}, "tables": tables}))
    )


def publish_contract(store: ArtifactStore, contract: Contract | Mapping[str, Any]) -> str:
    """The reference of a contract: published here, unless it is an object `{"reference": …}`.

    Raises ConfigurationError if it is no contract.
    """
    if not isinstance(contract, Contract):
        if contract.keys() == {"reference"}:
            return str(contract["reference"])
        if "columns" in contract and "tables" not in contract:
            raise ConfigurationError(
                "contract: expected a whole contract for a snapshot, {version: 1, tables: {NAME: {columns: …}}}, found "
                "the rules of one table. Put them under the table's name."
            )
        contract = checked("contract", Contract, contract)
    return str(store.publish("config", "contract", {CONTRACT_FILE: contract_text(contract).encode()}))


def published_contract(text: str) -> Contract:
    """Read a contract that `contract_text` wrote, in JSON, because YAML reads some numbers and characters differently.

    Raises ConfigurationError listing every problem with the path of its key.
    """
    try:
        body = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigurationError(f"{CONTRACT_FILE}: expected the JSON of a contract, found {error}.") from None
    return checked(CONTRACT_FILE, Contract, body)
