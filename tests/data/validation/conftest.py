"""A small snapshot that tests of validation build from rows."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gatehouse.data.validation.contract import CONTRACT_FILE
from gatehouse.data.validation.report import page
from gatehouse.data.validation.stage import ValidateRequest, ValidateResult, validate
from gatehouse.store.manifest import Column
from gatehouse.store.store import ArtifactStore

AS_OF = "2024-01-10T00:00:00+00:00"
Validate = Callable[..., ValidateResult]


def publish(
    store: ArtifactStore,
    tables: dict[str, pa.Table],
    rows_per_file: int = 1000,
    rows_per_group: int | None = None,
    sensitive: tuple[str, ...] = (),
) -> str:
    """Publish a snapshot of Arrow tables, each cut into files of `rows_per_file` rows, these into row groups."""
    details = {"sensitive": list(sensitive)} if sensitive else {}
    datasets = {}
    with store.workspace() as workspace:
        for name, table in tables.items():
            files, counts = {}, {}
            for index, start in enumerate(range(0, max(table.num_rows, 1), rows_per_file)):
                part = f"part-{index:05d}.parquet"
                files[part] = workspace / f"{name}-{part}"
                counts[part] = len(table.slice(start, rows_per_file))
                pq.write_table(table.slice(start, rows_per_file), files[part], row_group_size=rows_per_group)
            columns = [Column(field.name, str(field.type)) for field in table.schema]
            datasets[name] = store.publish(
                "datasets", name, files, columns=columns, rows_per_file=counts, details=details
            )
    return str(store.publish("snapshots", "small", {}, derived_from=datasets, details={"as_of": AS_OF}))


def shown(store: ArtifactStore, result: ValidateResult) -> str:
    """Everything that a validation lets anybody read: its files, those of its statistics, and its page."""
    references = (result.validation, store.manifest(result.validation).derived_from["statistics"])
    texts = [
        store.read_text(reference, entry.path) for reference in references for entry in store.manifest(reference).files
    ]
    return "".join([*texts, page(store, result.validation)])


def anomalies_of(store: ArtifactStore, result: ValidateResult) -> list[dict[str, Any]]:
    """The anomalies of a validation."""
    anomalies: list[dict[str, Any]] = store.read_json(result.validation, "anomalies.json")
    return anomalies


def column_contract(rules: Mapping[str, Any], **table: Any) -> dict[str, Any]:
    """Tables of a contract: one table `t` with one column `a`."""
    return {"t": {"columns": {"a": dict(rules)}} | table}


@pytest.fixture
def judge(store: ArtifactStore) -> Validate:
    """Judges Arrow tables against the `tables` of a contract."""

    def run(
        tables: dict[str, pa.Table],
        contract: dict[str, Any],
        baseline: str = "",
        rows_per_file: int = 1000,
        rows_per_group: int | None = None,
    ) -> ValidateResult:
        text = json.dumps({"version": 1, "tables": contract})
        reference = store.publish("config", "contract", {CONTRACT_FILE: text})
        snapshot = publish(store, tables, rows_per_file, rows_per_group)
        return validate(ValidateRequest(snapshot=snapshot, contract=str(reference), baseline=baseline), store)

    return run
