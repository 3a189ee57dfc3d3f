"""The contract beside the source: SQL of rules bound to declared columns, and sensitive columns of both."""

from collections.abc import Iterator

from gatehouse.data.sources.catalog import SourceSpec, parse_source
from gatehouse.data.validation.contract import Contract
from gatehouse.data.validation.rules import row_rules, unrunnable
from gatehouse.features.computing.dry_run import declare_table
from gatehouse.features.database import connect, quoted
from gatehouse.project.project_file import ProjectFile


def unrunnable_rules(file: ProjectFile, contract: Contract) -> Iterator[str]:
    """The rules of a contract whose SQL cannot be evaluated, each with its key; tables fit the source."""
    with connect() as connection:
        for name, table in contract.tables.items():
            view = f"raw.{quoted(name)}"
            declared = {column: kind.value for column, kind in file.source.tables[name].columns.items()}
            declare_table(connection, view, declared)
            places = {f"expression {expression.name}": index for index, expression in enumerate(table.expressions)}
            for rule in row_rules(table, [*declared], [*table.columns], frozenset()):
                if why := unrunnable(connection, view, rule):
                    where = f"expressions.{places[rule.rule]}.sql" if rule.sql else f"columns.{rule.columns[0]}"
                    key = "" if rule.sql else f".{rule.rule}"
                    yield f"tables.{name}.{where}{key}: cannot be evaluated: {why}"


def with_sensitive_columns(source: SourceSpec, contract: Contract) -> SourceSpec:
    """The source, with the contract's sensitive columns added to its own."""
    body = source.model_dump(mode="json")
    for name, table in body["tables"].items():
        table["sensitive"] = sorted({*table["sensitive"], *contract.sensitive(name, table["columns"])})
    return parse_source(body)
