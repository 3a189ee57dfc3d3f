"""A component's interface changes only with a line in the changelog."""

import json
from copy import deepcopy
from typing import Any

import pytest

from gatehouse.kfp.compilation.component_files import public_components
from gatehouse.kfp.compilation.interfaces import INTERFACES_FILE, interfaces, undeclared
from tests.source_tree import COMPONENTS, ROOT

RELEASED: dict[str, Any] = {
    "split": {
        "inputs": {"rows": {"type": "system.Dataset@0.0.1"}, "seed": {"type": "Integer", "default": 0}},
        "outputs": {"train": "system.Dataset@0.0.1"},
    },
    "train": {"inputs": {}, "outputs": {}},
}
CHANGES: list[tuple[str, str, str, Any, str]] = [
    ("split", "inputs", "seed", {"type": "String", "default": ""}, "major"),
    ("split", "inputs", "seed", {"type": "Integer", "default": 1}, "major"),
    ("split", "inputs", "seed", None, "major"),
    ("split", "inputs", "label", {"type": "String"}, "major"),
    ("split", "inputs", "label", {"type": "String", "default": ""}, "minor"),
    ("split", "inputs", "rows", {"type": "system.Dataset@0.0.1", "default": None}, "minor"),
    ("split", "outputs", "test", "system.Dataset@0.0.1", "minor"),
    ("split", "outputs", "train", None, "major"),
    ("split", "outputs", "train", "system.Model@0.0.1", "major"),
]


def _changelog(*lines: str) -> str:
    return "# Changelog\n\n## Unreleased\n\n### Changed\n\n" + "".join(f"- {line}\n" for line in lines) + "\n## 1.0.0\n"


@pytest.mark.parametrize(("component", "part", "name", "field", "size"), CHANGES)
def test_a_changed_field_needs_a_line(component: str, part: str, name: str, field: Any, size: str) -> None:
    new = deepcopy(RELEASED)
    new[component][part].pop(name, None)
    new[component][part] |= {} if field is None else {name: field}
    elsewhere = _changelog(f"`{component}` is quicker.", f"`train` takes `{name}`.") + f"- `{component}`: `{name}`\n"
    (finding,) = undeclared(RELEASED, new, elsewhere)
    assert f" {name} " in finding and f"a {size} change" in finding
    assert not list(undeclared(RELEASED, new, _changelog(f"`{component}` has another\n  `{name}`.")))


def test_a_removed_component_needs_a_line_and_a_new_one_does_not() -> None:
    new = {"split": RELEASED["split"], "launch": RELEASED["train"]}
    assert len(list(undeclared(RELEASED, new, _changelog("`split` is quicker.")))) == 1
    assert not list(undeclared(RELEASED, new, _changelog("`train` is gone.")))


def test_every_change_since_the_release_is_in_the_changelog() -> None:
    released = json.loads((COMPONENTS / INTERFACES_FILE).read_text())
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    new = interfaces(public_components())
    assert len(new) == 24
    assert list(undeclared(released, new, changelog)) == []
