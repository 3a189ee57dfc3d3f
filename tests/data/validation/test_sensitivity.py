"""Sensitive columns: found in all that a thing was made from, and nothing is shown where that cannot be known."""

from pathlib import Path

import pytest

from gatehouse.data.validation.sensitivity import sensitive_columns
from gatehouse.data.validation.stage import validate
from gatehouse.errors import MissingArtifactError
from gatehouse.features.leakage.stage import check_leakage
from gatehouse.store.store import ArtifactStore


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


def test_how_columns_are_hidden_is_in_the_key_of_what_hides_them() -> None:
    for stage in (validate, check_leakage):
        assert sensitive_columns.__module__ in stage.sources().modules
