"""Names of metrics, as configuration writes them: those of the files in the room, found without importing them."""

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, WithJsonSchema

from gatehouse.yaml_lines import nearest

NAMES = tuple(sorted(path.stem for path in Path(__file__).parents[1].glob("[a-z]*.py")))


def _known(name: str) -> str:
    if name not in NAMES and (meant := nearest(name, NAMES)):
        raise ValueError(f"expected a metric{meant}, found {name!r}")
    if name not in NAMES:
        raise ValueError(f"expected one of the metrics {', '.join(NAMES)}, found {name!r}")
    return name


MetricName = Annotated[str, AfterValidator(_known), WithJsonSchema({"type": "string", "enum": list(NAMES)})]
