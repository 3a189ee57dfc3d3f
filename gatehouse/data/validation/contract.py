"""The data contract: rules on the tables of a snapshot, each with its severity and owner."""

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PrivateAttr, ValidationError, model_validator

from gatehouse.configuration.duration import Duration
from gatehouse.data.validation.column_contract import (
    ColumnContract,
    Count,
    Graded,
    Listed,
    Names,
    Part,
    Positive,
    Problem,
    Rule,
    Sql,
    refuse,
    reversed_bounds,
    unsuited_if_sensitive,
)
from gatehouse.errors import ConfigurationError
from gatehouse.runtime.plural import counted
from gatehouse.store.canonical import canonical_json
from gatehouse.store.identity import identity_of
from gatehouse.store.parameters import checked
from gatehouse.store.store import ArtifactStore

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
        refuse("table", _problems(self))
        return self


def _problems(table: TableContract) -> Iterator[Problem]:
    """Impossible row counts; freshness of a column that is no timestamp; columns that the table does not list."""
    for low, high in (("min_rows", "max_rows"), ("min_rows_ratio", "max_rows_ratio")):
        least, greatest = getattr(table, low), getattr(table, high)
        if least is not None and greatest is not None:
            yield from reversed_bounds((), low, least.value, high, greatest.value)
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
                for place, key, why in unsuited_if_sensitive(promised[column]):
                    yield f"tables.{table}.columns.{column}.{place}{key}: {why}"

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
        contract = checked("contract", Contract, contract)
    return str(store.publish("config", "contract", {CONTRACT_FILE: contract_text(contract).encode()}))


def published_contract(text: str) -> Contract:
    """Read a contract that `contract_text` wrote, in JSON, because YAML reads some numbers and characters differently.

    Raises ConfigurationError listing every problem with the path of its key.
    """
    try:
        return Contract.model_validate(json.loads(text))
    except ValidationError as error:
        problems = [f"{'.'.join(map(str, line['loc'])) or 'the file'}: {line['msg']}" for line in error.errors()]
    except json.JSONDecodeError as error:
        problems = [f"expected the JSON of a contract, found {error}"]
    listed = "".join(f"\n  - {CONTRACT_FILE}: {problem}" for problem in problems)
    raise ConfigurationError(
        f"{counted(len(problems), 'problem')} in the published contract. Publish it again:{listed}"
    )
