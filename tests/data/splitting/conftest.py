"""Training sets to divide, made of a few columns."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import TypeAdapter

from gatehouse.data.splitting.spec import SplitSpec
from gatehouse.data.splitting.training_set import TrainingSet
from gatehouse.store.manifest import Manifest
from gatehouse.store.store import ArtifactStore

Publish = Callable[..., str]
SPEC: TypeAdapter[SplitSpec] = TypeAdapter(SplitSpec)


def spec_of(**keys: Any) -> SplitSpec:
    """A specification as it is read from a project."""
    return SPEC.validate_python(keys)


@pytest.fixture
def publish(store: ArtifactStore) -> Publish:
    """Publishes a training set in files of a few hundred rows and gives its reference."""

    def publish_table(columns: dict[str, Any] | pa.Table, rows_a_file: int = 700, **details: Any) -> str:
        table = columns if isinstance(columns, pa.Table) else pa.table(columns)
        files, rows = {}, {}
        with store.workspace() as workspace:
            for number, start in enumerate(range(0, max(1, table.num_rows), rows_a_file)):
                name = f"part-{number:05d}.parquet"
                pq.write_table(table.slice(start, rows_a_file), workspace / name)
                files[name], rows[name] = workspace / name, min(rows_a_file, table.num_rows - start)
            all_details = {"label": "label", "entity_keys": ["key"]} | details
            counts = {"rows": table.num_rows, "rows_per_file": rows}
            return str(store.publish("training-sets", "service", files, **counts, details=all_details))

    return publish_table


def opened(tmp_path: Any, columns: dict[str, Any] | pa.Table, **details: Any) -> TrainingSet:
    """A training set that lies in no store."""
    table = columns if isinstance(columns, pa.Table) else pa.table(columns)
    pq.write_table(table, tmp_path / "table.parquet")
    all_details = {"label": "label", "entity_keys": ["key"]} | details
    return TrainingSet(Manifest("training-sets", "service", (), details=all_details), [tmp_path / "table.parquet"])
