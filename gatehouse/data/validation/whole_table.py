"""Validates a KFP Dataset without a source: takes a snapshot of its rows, and judges that."""

from collections.abc import Mapping
from typing import Any

from gatehouse.data.datasets import read_dataset
from gatehouse.data.snapshot.whole_table import snapshot_table
from gatehouse.data.statistics.stage import MeasureRequest, measure
from gatehouse.data.validation.contract import contract_of_table, publish_contract
from gatehouse.data.validation.stage import ValidateRequest, ValidateResult, validate
from gatehouse.store.identity import identity_of
from gatehouse.store.store import ArtifactStore


def validate_dataset(
    store: ArtifactStore, path: str, contract: Mapping[str, Any], baseline: str = "", format: str = "", table: str = ""
) -> ValidateResult:
    """Judge the rows of a Dataset by the contract of `table`; `baseline` is the path of a Dataset too.

    Raises:
        ConfigurationError: if the contract is invalid, or has several tables of which none is named.
        SourceError: if a Dataset cannot be read, or has no rows.
    """
    name, promised, lost = contract_of_table(contract, table)
    types = {column: str(rules.type.value) for column, rules in promised.tables[name].columns.items()}
    before = ""
    for file in filter(None, (baseline, path)):
        rows = read_dataset(file, format, types)
        hidden = tuple(sorted(promised.sensitive(name, rows.column_names).intersection(rows.column_names)))
        taken = snapshot_table(store, rows, name, sensitive=hidden)
        if file == baseline:
            datasets = store.manifest(taken.snapshot).derived_from
            before = measure(MeasureRequest(name=name, datasets=datasets, sensitive={name: hidden}), store).statistics
    config = publish_contract(store, identity_of(promised))
    said = (*taken.delivery, *lost)
    return validate(ValidateRequest(snapshot=taken.snapshot, contract=config, baseline=before, delivery=said), store)
