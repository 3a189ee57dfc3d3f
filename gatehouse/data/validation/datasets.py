"""Judges one table, such as a KFP Dataset, by what a contract has of it."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from gatehouse.data.snapshot.whole_table import snapshot_table
from gatehouse.data.statistics.stage import MeasureRequest, measure
from gatehouse.data.validation.anomalies import shortened
from gatehouse.data.validation.contract import CONTRACT_FILE, NOT_GIVEN, Contract, publish_contract, published_contract
from gatehouse.data.validation.stage import ValidateRequest, ValidateResult, validate
from gatehouse.errors import ConfigurationError
from gatehouse.store.reference import references_in
from gatehouse.store.store import ArtifactStore


def contract_of_table(
    store: ArtifactStore, body: Mapping[str, Any], table: str, allow_unchecked: bool
) -> tuple[str, Contract]:
    """The name of one table, and the contract without the others; keys in these cannot be judged.

    `body` is a contract, what it has of one table, or its reference. `table` may be empty if the contract has one.
    Unless `allow_unchecked`, a rule that cannot be judged is broken.
    Raises ConfigurationError listing every problem.
    """
    if "tables" not in body and body.keys() != {"reference"}:
        body = contract_of_one_table(body, table)
    contract = published_contract(store.read_text(publish_contract(store, body), CONTRACT_FILE))
    table = table or "".join(contract.tables) * (len(contract.tables) == 1)
    if table not in contract.tables:
        listed = ", ".join(contract.tables)
        raise ConfigurationError(f"table: expected one of the contract's tables, {listed}, found {table!r}. Name it.")
    keys = [
        key
        if (references_in(key.snapshot) if key.snapshot else key.table == table)
        else key.model_copy(update={"snapshot": NOT_GIVEN})
        for key in contract.tables[table].foreign_keys
    ]
    alone = contract.tables[table].model_copy(update={"foreign_keys": tuple(keys)})
    return table, contract.model_copy(update={"tables": {table: alone}, "require_judged": not allow_unchecked})


def contract_of_one_table(body: Mapping[str, Any], table: str = "") -> dict[str, Any]:
    """The contract whose only table promises `body`, which may have keys of the contract itself too."""
    top = {key: value for key, value in body.items() if key in Contract.model_fields}
    return {"version": 1, **top, "tables": {table or "dataset": {k: v for k, v in body.items() if k not in top}}}


def validate_table(
    store: ArtifactStore, contract: Contract, rows: pa.Table, baseline: pa.Table | None, before: str = ""
) -> ValidateResult:
    """Judge rows by a contract of one table; rules on drift compare with the rows of the baseline, or with `before`.

    `before` is the reference of an earlier validation.

    Rules that may go unchecked, and did, are warnings.
    """
    (name,) = contract.tables
    for table in (rows,) if baseline is None else (baseline, rows):
        hidden = sorted(contract.sensitive(name, table.column_names).intersection(table.column_names))
        taken = snapshot_table(store, table, name, sensitive=hidden, compare=False)
        if table is baseline:
            datasets = store.manifest(taken.snapshot).derived_from
            before = measure(MeasureRequest(name=name, datasets=datasets, sensitive={name: hidden}), store).statistics
    about = {"snapshot": taken.snapshot, "contract": publish_contract(store, contract), "baseline": before}
    result = validate(ValidateRequest(**about, delivery=taken.delivery), store)
    skipped = () if contract.require_judged else store.read_json(result.validation, "verdict.json")["not_judged"]
    unchecked = shortened([f"not checked: {rule}" for rule in skipped])
    return result.model_copy(update={"warnings": (*result.warnings, *unchecked)})
