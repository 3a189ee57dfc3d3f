"""Compares the interfaces of components with those of the last release: a change must be a line of the changelog."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gatehouse.components.interface import Component

INTERFACES_FILE = "interfaces.json"
"""In the folder `components`: what `interfaces` gave at the last release."""
Interface = Mapping[str, Mapping[str, Any]]
"""`inputs` and `outputs` by name: of an input the type, and its default where it is optional; of an output the type."""


def interfaces(components: Mapping[str, Component]) -> dict[str, Interface]:
    """The interface of each component, by name."""
    return {name: _interface(component) for name, component in sorted(components.items())}


def undeclared(released: Mapping[str, Interface], new: Mapping[str, Interface], changelog: str) -> Iterator[str]:
    """A finding for each change since the release that the changelog does not name.

    A line under *Unreleased* has to hold the name of the component, and that of the input or output, each in backticks.
    A new component needs no line. An added optional input, one that became optional, and an added output are a minor
    change; every other is major.
    """
    lines = changelog.partition("\n## Unreleased\n")[2].partition("\n## ")[0]
    entries = [set(re.findall(r"`(\w+)`", entry)) for entry in re.split(r"\n(?=- )", lines)]
    no_line = "CHANGELOG.md has no line under Unreleased with"
    for component, interface in released.items():
        if component not in new and not any(component in entry for entry in entries):
            yield f"{component} was removed, a major change: {no_line} `{component}`."
        for part, fields in interface.items():
            current = new.get(component, interface)[part]
            for name in sorted({*fields, *current}):
                before, after = fields.get(name), current.get(name)
                if before == after or any({component, name} <= entry for entry in entries):
                    continue
                if part == "outputs":
                    minor = before is None
                else:  # Who gave the input, or did not, sees no difference.
                    minor = after is not None and "default" in after and before in (None, {"type": after["type"]})
                size, was = "minor" if minor else "major", before or "not there"
                yield (
                    f"{component}: {part.removesuffix('s')} {name} is {after or 'gone'}, was {was}; a {size} change: "
                    f"{no_line} `{component}` and `{name}`."
                )


def _interface(component: Component) -> Interface:
    spec = component.component_spec
    inputs = {
        name: {"type": field.type} | ({"default": field.default} if field.optional else {})
        for name, field in sorted((spec.inputs or {}).items())
    }
    return {"inputs": inputs, "outputs": {name: field.type for name, field in sorted((spec.outputs or {}).items())}}
