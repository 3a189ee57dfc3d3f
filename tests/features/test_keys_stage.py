"""A table of keys is taken from where it lies, or from the store."""

from pathlib import Path

import pytest

from gatehouse.errors import ConfigurationError
from gatehouse.features.keys_stage import TakeKeysRequest, take_keys
from gatehouse.store.store import ArtifactStore


def taken(store: ArtifactStore, keys: str) -> str:
    return take_keys.function(TakeKeysRequest(keys=keys, name="shops"), store).taken


def test_a_file_is_published_as_it_is_and_its_reference_is_taken(store: ArtifactStore, tmp_path: Path) -> None:
    file = tmp_path / "asked.csv"
    file.write_text("shop,decision_time\n7,2024-01-01\n")
    reference = taken(store, str(file))
    assert reference.startswith("keys/shops/sha256-")
    assert store.path(reference, "keys.csv").read_bytes() == file.read_bytes()
    renamed = file.with_name("again.CSV")
    renamed.write_bytes(file.read_bytes())
    assert taken(store, file.as_uri()) == taken(store, str(renamed)) == taken(store, reference) == reference
    assert taken(store, "") == ""


def test_what_is_no_table_of_keys_is_named(store: ArtifactStore, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"expected a CSV or Parquet file at .*absent\.csv, found none"):
        taken(store, str(tmp_path / "absent.csv"))
    (tmp_path / "asked.xlsx").touch()
    with pytest.raises(ConfigurationError, match=r"asked\.xlsx: expected a file of entity rows that ends in \.csv or"):
        taken(store, str(tmp_path / "asked.xlsx"))
    with pytest.raises(ConfigurationError, match="or a reference keys/"):
        taken(store, f"datasets/shops/sha256-{'0' * 64}")
