"""The source as a snapshot is taken of it: what the contract calls sensitive is shown of no row that is rejected."""

from gatehouse.components.snapshot.sources.catalog import SourceSpec, parse_source
from gatehouse.components.validation.contract import Contract


def with_sensitive_columns(source: SourceSpec, contract: Contract) -> SourceSpec:
    """The source, with the columns that the contract calls sensitive beside those that it calls so itself."""
    body = source.model_dump(mode="json")
    for name, table in body["tables"].items():
        table["sensitive"] = sorted({*table["sensitive"], *contract.sensitive(name, table["columns"])})
    return parse_source(body)
