"""The KFP component of a stage."""

from gatehouse import components
from gatehouse.components.interface import Component


def component_of(name: str) -> Component:
    """The component `name`."""
    component: Component = getattr(components, name)
    return component
