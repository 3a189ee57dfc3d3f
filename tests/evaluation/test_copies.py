"""Rows that the split keeps together count once: copies of a few rows make no evidence."""

import numpy as np
import pyarrow as pa
import pytest

from gatehouse.data.splitting.parts import Part
from gatehouse.evaluation.stage import EvaluateRequest, _units
from gatehouse.store.canonical import canonical_json
from gatehouse.store.store import ArtifactStore
from tests.evaluation.conftest import LENIENT, SPEC


@pytest.mark.parametrize(
    ("split", "resample_by", "units"),
    [
        ({"strategy": "group", "columns": ["shop", "size"]}, "", ("shop and size", 30)),
        ({"strategy": "entity"}, "", ("shop", 10)),
        ({"strategy": "random"}, "", ("row", 300)),
        ({}, "", ("row", 300)),
        ({"strategy": "group", "columns": ["shop"]}, "size", ("size", 3)),
    ],
)
def test_units_are_what_the_project_names_or_the_split_keeps_together(
    store: ArtifactStore, split: dict[str, object], resample_by: str, units: tuple[str, int]
) -> None:
    rows = np.arange(300)
    table = pa.table({"shop": rows % 10, "size": rows % 3})
    body = {"train.parquet": canonical_json([])}
    reference = str(store.publish("splits", "sales", body, configuration=split))
    request = EvaluateRequest(
        model="m",
        training_set="t",
        split=reference,
        policy=LENIENT,
        spec=SPEC.model_copy(update={"resample_by": resample_by}),
    )
    found = _units(request, store, Part(rows, table, rows % 2.0), {"entity_keys": ["shop"]})
    assert (found.name, found.number) == units
