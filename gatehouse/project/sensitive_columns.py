"""Adds the contract's sensitive columns to the source, so that snapshots hide their values in rejected rows."""

from gatehouse.data.sources.catalog import SourceSpec, parse_source
from gatehouse.data.validation.contract import Contract


def with_sensitive_columns(source: SourceSpec, contract: Contract) -> SourceSpec:
    """The source, with the contract's sensitive columns added to its own."""
    body = source.model_dump(mode="json")
    for name, table in body["tables"].items():
        table["sensitive"] = sorted({*table["sensitive"], *contract.sensitive(name, table["columns"])})
    return parse_source(body)
