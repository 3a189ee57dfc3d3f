"""The one place that names the container images of the components."""

import os


def image(name: str) -> str:
    """The image of this name."""
    return os.environ.get(f"GATEHOUSE_IMAGE_{name.upper()}", f"gatehouse/{name}:0.1.0")
