"""What an older KFP backend would silently ignore."""

from pathlib import Path

import pytest

from gatehouse.errors import ConfigurationError
from gatehouse.kfp.compilation.backends import FEATURES, needed, newer, unsupported
from gatehouse.kfp.compilation.specification import read_spec

ROOT = Path(__file__).parents[3]


def _names(found: list[str]) -> set[str]:
    return {each.partition(":")[0] for each in found}


def test_the_newest_backend_ignores_nothing(released: Path) -> None:
    assert unsupported(read_spec(released / "flights-training.yaml"), "2.17") == []


def test_an_older_backend_ignores_what_came_later(released: Path) -> None:
    spec = read_spec(released / "flights-training.yaml")
    assert _names(unsupported(spec, "2.16.1")) == {"removal of ended runs' pods"}
    assert _names(unsupported(spec, "2.15")) == {"removal of ended runs' pods", "user and group of a pod"}
    assert "optional variable from a secret or a config map" in _names(unsupported(spec, "2.14.4"))
    oldest = _names(unsupported(spec, "2.0.5"))
    assert {"timeout of a task", "toleration", "retries of a task", "variable from a field of the pod"} <= oldest


def test_what_a_spec_needs_is_the_oldest_backend_that_ignores_nothing(compiled: Path, released: Path) -> None:
    there, here = (read_spec(folder / "flights-training.yaml") for folder in (released, compiled))
    assert (needed(there), needed(here)) == ("2.17.0", "2.15.0")
    assert unsupported(here, needed(here)) == []


def test_what_a_spec_does_not_ask_for_needs_no_backend(compiled: Path) -> None:
    found = _names(unsupported(read_spec(compiled / "flights-promotion.yaml"), "2.0.5"))
    assert not found & {"toleration", "user and group of a pod", "removal of ended runs' pods", "workspace of a run"}


def test_a_finding_says_who_needs_what_and_what_happens_without(released: Path) -> None:
    (found,) = [
        each for each in unsupported(read_spec(released / "flights-training.yaml"), "2.0.5") if "tolera" in each
    ]
    assert found == (
        "toleration: needs KFP 2.1.0, and 2.0.5 ignores it: pods do not get onto tainted nodes (exit-handler-1/train)"
    )


@pytest.mark.parametrize("version", ["1.8", "2", "newest", "2.x"])
def test_what_is_no_version_of_kfp_2_is_refused(compiled: Path, version: str) -> None:
    with pytest.raises(ConfigurationError, match="expected a version of KFP 2"):
        unsupported(read_spec(compiled / "flights-promotion.yaml"), version)


@pytest.mark.parametrize(("version", "told"), [("2.17", ""), ("2.18.0", "nothing is known of KFP 2.18.0")])
def test_a_backend_that_was_not_read_is_told(version: str, told: str) -> None:
    assert newer(version).startswith(told) and bool(newer(version)) == bool(told)


def test_the_table_stands_in_the_documentation() -> None:
    documented = (ROOT / "docs" / "specs.md").read_text()
    for each in FEATURES:
        assert f"| {each.name} | {each.since} | {each.otherwise} | `{each.read_in}` |" in documented
