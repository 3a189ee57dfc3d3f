"""Validates one table, such as a KFP Dataset, without a source: takes its snapshot, and judges that."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gatehouse.data.datasets import read_dataset
from gatehouse.data.snapshot.whole_table import snapshot_table
from gatehouse.data.statistics.stage import MeasureRequest, measure
from gatehouse.data.validation.contract import CONTRACT_FILE, contract_of_table, contract_text
from gatehouse.data.validation.stage import ValidateRequest, ValidateResult, validate
from gatehouse.store.store import ArtifactStore


def validate_file(
    store: ArtifactStore,
    path: str | Path,
    contract: Mapping[str, Any],
    baseline: str | Path = "",
    *,
    format: str = "",
    table: str = "",
) -> ValidateResult:
    """Judge the rows of a Dataset by a contract, of which only the rules of `table` count; `baseline` is a Dataset too.

    Raises:
        ConfigurationError: if the contract is invalid, or has several tables of which none is named.
        SourceError: if a Dataset cannot be read, or has no rows.
    """
    name, promised, lost = contract_of_table(contract, table)
    types = {column: str(rules.type.value) for column, rules in promised.tables[name].columns.items()}
    config = store.publish("config", f"{name}-contract", {CONTRACT_FILE: contract_text(promised)})
    compared = ""
    for file in filter(None, (baseline, path)):
        rows = read_dataset(file, format if file == path else "", types)
        hidden = sorted(promised.sensitive(name, rows.column_names))
        taken = snapshot_table(store, rows, name, sensitive=hidden)
        if file == baseline:
            datasets = store.manifest(taken.snapshot).derived_from
            sensitive = {name: tuple(hidden)} if hidden else {}
            compared = measure(MeasureRequest(name=name, datasets=datasets, sensitive=sensitive), store).statistics
    request = ValidateRequest(
        snapshot=taken.snapshot, contract=str(config), baseline=compared, delivery=(*taken.delivery, *lost)
    )
    return validate(request, store)
