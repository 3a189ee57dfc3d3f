"""The data contract: what the tables of a snapshot promise, rule by rule, with severity and owner."""

import json
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import Field, ModelWrapValidatorHandler, PlainValidator, ValidationError, WithJsonSchema, model_validator

from gatehouse.components.validation.contradictions import column_problems, name_problems, table_problems
from gatehouse.components.validation.graded import Graded, Listed, Part, Rule, Severity, merged, refuse
from gatehouse.errors import ConfigurationError
from gatehouse.yaml_lines import load_model

ColumnType = Literal["int64", "double", "string", "bool", "timestamp"]
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


# Look-around, atomic groups, conditions and references back to a group; a backslash before is an escape of its own.
_NOT_IN_RE2 = re.compile(r"(?<!\\)(?:\\\\)*(?:\(\?(?:[=!>(]|<[=!]|P=)|\\[1-9])")


def _regular(pattern: Any) -> str:
    if not isinstance(pattern, str):
        raise ValueError("expected a regular expression as text")
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"is not a regular expression: {error}") from None
    unknown = _NOT_IN_RE2.search(pattern)
    if unknown:
        raise ValueError(f"{unknown[0]!r} is not known to RE2, which judges patterns in linear time; write it without")
    return pattern


def _repeatable(sql: Any) -> str:
    if not isinstance(sql, str) or not sql.strip():
        raise ValueError("expected a SQL expression")
    bare = _TEXT.sub("''", sql)
    if not _is_closed(bare):
        raise ValueError("expected one SQL expression, found parentheses that do not match, or a semicolon")
    found = _VOLATILE.search(bare)
    if found:
        raise ValueError(f"{found[0].strip()!r} differs from run to run; judge age by `freshness`, against as_of")
    return sql


def _is_closed(sql: str) -> bool:
    """Whether no parenthesis closes what the expression has not opened, or stays open; it is judged inside a pair."""
    depth = 0
    for letter in sql:
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if depth < 0 or letter == ";":
            return False
    return depth == 0


_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_BOUND_SCHEMA = {"anyOf": [{"type": "number"}, {"type": "string", "format": "date-time"}]}
Bound = Annotated[int | float | datetime, PlainValidator(_bound), WithJsonSchema(_BOUND_SCHEMA)]
Pattern = Annotated[str, PlainValidator(_regular), WithJsonSchema({"type": "string", "format": "regex"})]
Expression_ = Annotated[str, PlainValidator(_repeatable), WithJsonSchema({"type": "string", "minLength": 1})]
Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0)]
Values = Annotated[tuple[str | int | bool, ...], Field(min_length=1)]
Names = Annotated[tuple[str, ...], Field(min_length=1)]


@dataclass(frozen=True)
class GradedRule:
    """One rule of a column: its key in the contract (`warn.` in front where it stands there), value and grade."""

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
    allowed: Rule[Values] | None = Field(None, description="The only values there may be.")
    pattern: Rule[Pattern] | None = Field(None, description="Regular expression (RE2) that the whole text must match.")
    min_length: Rule[Count] | None = Field(None, description="Least number of characters of a text.")
    max_length: Rule[Count] | None = Field(None, description="Greatest number of characters of a text.")
    unique: Rule[bool] | None = Field(None, description="No value twice; nulls do not count.")
    min_distinct_share: Rule[Share] | None = Field(
        None, description="Least number of different values, as a share of those that are not null."
    )
    max_distinct_share: Rule[Share] | None = Field(None, description="Greatest such share.")
    mean_shift: Rule[Positive] | None = Field(
        None, description="Greatest distance of the mean from the baseline's, in the baseline's standard deviations."
    )
    spread_ratio: Rule[Annotated[float, Field(ge=1, allow_inf_nan=False)]] | None = Field(
        None, description="Greatest ratio between the standard deviations now and in the baseline, the larger on top."
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

    def given(self) -> Iterator[tuple[str, Rule[Any]]]:
        """The rules that are given, by key, in the order of this class."""
        for key in ColumnRules.model_fields:
            rule = getattr(self, key)
            if rule is not None and rule.value is not False:
                yield key, rule


class ColumnContract(ColumnRules):
    """What one column promises. Rules under `warn` are judged too, but cannot break the contract."""

    type: Rule[ColumnType] = Field(description="Its grade is also that of a column that is missing.")
    nullable: Rule[bool] = Field(Rule(value=True), description="Whether any value may be null.")
    sensitive: bool = Field(False, description="Show no value of it in anomalies, statistics or reports.")
    warn: ColumnRules | None = None
    owner: str = Field("", description="Who is asked when it breaks; empty for the table's owner.")

    @model_validator(mode="after")
    def _possible(self) -> "ColumnContract":
        refuse("column", column_problems(self))
        return self

    def graded(self) -> Iterator[GradedRule]:
        """Every rule on values: those whose breach fails, then those under `warn`."""
        if not self.nullable.value:
            yield GradedRule("nullable", "nullable", False, self.nullable.severity or "fail", self.nullable.owner)
        for key, rule in self.given():
            yield GradedRule(key, key, rule.value, rule.severity or "fail", rule.owner)
        for key, rule in self.warn.given() if self.warn else ():
            yield GradedRule(f"warn.{key}", key, rule.value, "warn", rule.owner)


class Freshness(Graded):
    """The newest value of a column may be at most `within` older than the snapshot's `as_of`.

    That is the newest time of all its tables, so this tells which table fell behind the others. Whether the source as a
    whole stands still is judged against the clock, by the guard `stale_after` of the source.
    """

    column: str
    within: timedelta = Field(ge=timedelta(0), description="ISO 8601 duration, e.g. P2D or PT6H.")


class Expression(Graded):
    """A SQL expression over the columns of one row. As in SQL, a row where it is null keeps it."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    sql: Expression_
    tolerance: float = Field(0.0, ge=0, lt=1, description="Share of rows that may break it.")


class Key(Listed):
    """Columns whose values no two rows share; a null counts as a value. Written as their list, or graded."""

    of_list = "columns"

    columns: Names


class Ordering(Listed):
    """The order in which rows stand, by the first column, then the next. Pairs of rows with a null are left out."""

    of_list = "by"

    by: Names
    descending: bool = False
    strictly: bool = Field(False, description="Whether two rows in sequence must differ.")


class ForeignKey(Graded):
    """Values of `columns`, where none is null, must be found in columns `to` of another table."""

    columns: Names
    table: str
    to: tuple[str, ...] = Field((), description="Columns of that table; empty for the same names.")
    snapshot: str = Field(
        "", description="Another snapshot: its reference, or a name under which the request gives it; empty for this."
    )
    tolerance: float = Field(0.0, ge=0, lt=1, description="Share of rows that may have no match.")

    @model_validator(mode="after")
    def _as_many(self) -> "ForeignKey":
        if self.to and len(self.to) != len(self.columns):
            raise ValueError(f"to: expected {len(self.columns)} columns, as many as in `columns`, found {len(self.to)}")
        return self


class TableContract(Part):
    """What one table promises."""

    owner: str = Field("", description="Who is asked when one of its rules breaks; empty for the contract's owner.")
    description: str = Field("", description="What a row of it is.")
    min_rows: Rule[Count] = Field(Rule(value=1), description="Least number of rows.")
    max_rows: Rule[Count] | None = Field(None, description="Greatest number of rows.")
    min_rows_ratio: Rule[Positive] | None = Field(None, description="Least number of rows, in those of the baseline.")
    max_rows_ratio: Rule[Positive] | None = Field(None, description="Greatest number of rows, in the baseline's.")
    columns: dict[str, ColumnContract] = Field(min_length=1)
    extra_columns: Literal["fail", "warn", "allow"] = Field("warn", description="For columns that are not listed.")
    unique: tuple[Key, ...] = Field((), description="Sets of columns whose values no two rows share.")
    ordered: Ordering | None = Field(None, description="The order in which rows stand.")
    freshness: Freshness | None = None
    expressions: tuple[Expression, ...] = ()
    foreign_keys: tuple[ForeignKey, ...] = ()

    @model_validator(mode="after")
    def _possible(self) -> "TableContract":
        refuse("table", table_problems(self))
        return self


class Contract(Part):
    """A versioned contract over the tables of a snapshot."""

    version: int = Field(ge=1, description="Raised by the team whenever a rule changes.")
    description: str = ""
    owner: str = Field("", description="Who is asked where neither rule, column nor table names anybody.")
    metadata: dict[str, str] = Field({}, description="Anything else that a reader should know; it is not judged.")
    examples: int = Field(5, ge=0, le=20, description="Most offending rows that an anomaly shows.")
    tables: dict[str, TableContract] = Field(min_length=1)

    @model_validator(mode="wrap")
    @classmethod
    def _everything_at_once(cls, body: Any, handler: ModelWrapValidatorHandler["Contract"]) -> "Contract":
        problems = list(name_problems(body))
        try:
            contract = handler(body)
        except ValidationError as error:
            raise merged("Contract", error, problems) from None
        refuse("Contract", problems)
        return contract

    def snapshots(self) -> tuple[str, ...]:
        """The other snapshots that foreign keys lead to, as the contract names them."""
        keys = (key for table in self.tables.values() for key in table.foreign_keys)
        return tuple(sorted({key.snapshot for key in keys if key.snapshot}))

    def sensitive(self, table: str, present: Iterable[str] = ()) -> frozenset[str]:
        """The columns of a table of which no value may be shown.

        Where there are any, those columns of `present` count too that the contract does not list: a sensitive column
        that comes under another name must not be shown for that. Nor must one whose table does.
        """
        if table not in self.tables:
            return frozenset(present if any(self.sensitive(other) for other in self.tables) else ())
        columns = self.tables[table].columns
        flagged = frozenset(column for column, promised in columns.items() if promised.sensitive)
        return flagged | (frozenset(present) - columns.keys()) if flagged else flagged


def parse_contract(text: str, name: str = "contract.yaml") -> Contract:
    """Read a contract from YAML.

    Raises:
        ConfigurationError: listing every problem at once, each with file, line and path of the key.
    """
    problems: list[str] = []
    contract = load_model(name, text, Contract, problems)
    if contract is None or problems:
        listed = "".join(f"\n  - {problem}" for problem in problems)
        raise ConfigurationError(f"{len(problems)} problems in the contract:{listed}")
    return contract


def contract_schema() -> str:
    """The JSON schema of a contract, for editors and other tools; `docs/contract.schema.json` holds it."""
    schema = Contract.model_json_schema()
    definitions = schema["$defs"]
    # pydantic names a definition after the whole type of the rule's value, so that rules stand inline instead.
    inline = {f"#/$defs/{name}": body for name, body in definitions.items() if name.startswith("Rule_")}
    kept = {name: body for name, body in definitions.items() if f"#/$defs/{name}" not in inline}
    schema = _inlined(schema | {"$defs": kept}, inline)
    return json.dumps({"$schema": _DIALECT, **schema}, indent=1, ensure_ascii=False) + "\n"


def _inlined(schema: Any, inline: dict[str, Any]) -> Any:
    if isinstance(schema, list):
        return [_inlined(each, inline) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("$ref") in inline:
        return _inlined(inline[schema["$ref"]] | {key: schema[key] for key in schema if key != "$ref"}, inline)
    return {key: _inlined(value, inline) for key, value in schema.items() if key != "title" or isinstance(value, dict)}
