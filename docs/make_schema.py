"""Writes docs/contract.schema.json, the JSON schema of data contracts, which editors check and complete them by."""

from _pages import main

from gatehouse.data.validation.contract import contract_schema


def make() -> dict[str, str]:
    """The schema by its path."""
    return {"docs/contract.schema.json": contract_schema()}


if __name__ == "__main__":
    main(make, __doc__)
