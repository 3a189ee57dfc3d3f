"""The one place that names the container images of the components.

An image is named by its tag, unless the setting `GATEHOUSE_IMAGE_<NAME>` names it by digest for a release (`pin`), or
in another registry.
"""

import os
import re
from pathlib import Path

from gatehouse import __version__

TRAINING, TRAINING_GPU = "training", "training-gpu"
"""The image in which operators' jobs train, and that serves models; and the same with CUDA, for accelerators."""
DATA, RAY = "data", "ray"
"""The image of data preparation, and the same with Ray, for an engine that needs it."""
LOCKS = {
    "control": ("control",),
    DATA: ("data", "sketches"),
    RAY: ("ray", "sketches"),
    TRAINING: ("training", "xgboost", "torch"),
    TRAINING_GPU: ("training", "torch-gpu"),
}
"""The images, smallest first, and what each is built from: files in locks/."""
_BY_DIGEST = re.compile(r".+@sha256:(?!0{64})[0-9a-f]{64}")


def image(name: str) -> str:
    """The image with this name for components; read when a component is defined."""
    return os.environ.get(_setting(name)) or f"gatehouse/{name}:{__version__}"


def training(accelerators: int) -> str:
    """Name of the image for training on this many accelerators."""
    return TRAINING_GPU if accelerators else TRAINING


def by_digest(reference: str) -> bool:
    """Whether an image is named as `repository@sha256:…`; the zeros of an example do not count as a digest."""
    return _BY_DIGEST.fullmatch(reference) is not None


def pin(lock: Path) -> dict[str, str]:
    """Name every image by the digest in `lock`; call this before components are imported.

    The YAML file maps names to `repository@sha256:...`, or to nothing if there is no digest yet. A setting that is
    already in the environment stays as it is. Returns the images that the file pins.
    """
    import yaml

    pinned = {name: reference for name, reference in (yaml.safe_load(lock.read_text()) or {}).items() if reference}
    for name, reference in pinned.items():
        os.environ.setdefault(_setting(name), reference)
    return pinned


def _setting(name: str) -> str:
    return f"GATEHOUSE_IMAGE_{name.upper().replace('-', '_')}"
