"""Sensitive columns: found in all that a thing was made from, and nothing is shown where that cannot be known."""

from pathlib import Path

import pyarrow as pa
import pytest

from gatehouse.data.validation.contract import CONTRACT_FILE
from gatehouse.data.validation.sensitivity import sensitive_columns
from gatehouse.data.validation.skew.stage import skew
from gatehouse.data.validation.stage import ValidateRequest, validate
from gatehouse.errors import MissingArtifactError
from gatehouse.features.leakage.stage import check_leakage
from gatehouse.store.store import ArtifactStore
from tests.data.validation.conftest import publish


def test_what_any_ancestor_declares_is_sensitive(store: ArtifactStore) -> None:
    first = store.publish("datasets", "a", {}, details={"sensitive": ["name"]})
    second = store.publish("datasets", "b", {}, details={"sensitive": ["code"]}, derived_from={"a": first})
    third = store.publish("features", "c", {}, derived_from={"b": second, "again": first})
    assert sensitive_columns(store, third) == {"name", "code"}
    assert sensitive_columns(store, str(first)) == {"name"}


def test_a_missing_ancestor_is_an_error_and_no_empty_answer(store: ArtifactStore) -> None:
    source = store.publish("datasets", "a", {}, details={"sensitive": ["name"]})
    made = store.publish("features", "c", {}, derived_from={"a": source})
    (Path(store.address) / f"{source}/manifest.json").unlink()
    with pytest.raises(MissingArtifactError, match=rf"{source} is missing, and {made} was made from it.*Restore it"):
        sensitive_columns(ArtifactStore.open(store.address), made)


def test_nothing_is_validated_where_what_its_data_came_from_is_missing(store: ArtifactStore) -> None:
    delivery = store.publish("deliveries", "d", {}, details={"sensitive": ["name"]})
    table = store.manifest(publish(store, {"t": pa.table({"name": ["Slartibartfast"]})})).derived_from["t"]
    held = store.manifest(table)
    files = {entry.path: store.path(table, entry.path) for entry in held.files}
    dataset = store.publish("datasets", "t", files, columns=held.columns, derived_from={"delivery": delivery})
    taken = store.publish("snapshots", "s", {}, derived_from={"t": dataset}, details={"as_of": "2024-01-10T00:00:00Z"})
    text = '{"version":1,"tables":{"t":{"columns":{"name":{"type":"string","allowed":["Ford"]}}}}}'
    contract = store.publish("config", "contract", {CONTRACT_FILE: text})
    (Path(store.address) / f"{delivery}/manifest.json").unlink()
    with pytest.raises(MissingArtifactError, match="which columns are sensitive"):
        validate(ValidateRequest(snapshot=str(taken), contract=str(contract)), ArtifactStore.open(store.address))


def test_how_columns_are_hidden_is_in_the_key_of_what_hides_them() -> None:
    for stage in (validate, skew, check_leakage):
        assert sensitive_columns.__module__ in stage.sources().modules
