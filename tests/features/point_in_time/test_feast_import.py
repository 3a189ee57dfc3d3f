"""Feast is imported without its own type checks and without PyTorch, and other imports are as before."""

import importlib
import sys

import pytest
import typeguard

from gatehouse.features.point_in_time.feast_store import quickly


def test_checks_and_pytorch_are_away_while_feast_is_imported_and_back_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checked = typeguard.typechecked
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    with quickly():
        assert typeguard.typechecked(pytest) is pytest
        assert typeguard.typechecked(forward_ref_policy=None)(pytest) is pytest  # type: ignore[arg-type, call-overload]  # Called as Feast does.
        with pytest.raises(ImportError):
            importlib.import_module("torch")
    assert typeguard.typechecked is checked and "torch" not in sys.modules


def test_feast_in_this_process_was_imported_so() -> None:
    from gatehouse.features.point_in_time.feast_store import FeatureStore

    assert FeatureStore.apply.__module__ == "feast.feature_store"
    entity = sys.modules["feast.entity"].Entity
    assert entity.__init__.__code__.co_filename == sys.modules["feast.entity"].__file__
    assert "check_argument_types" not in entity.__init__.__code__.co_names
