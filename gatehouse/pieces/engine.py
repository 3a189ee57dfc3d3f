"""The engine: where the pieces of a stage run. It is in no key, because it changes no bit of a result."""

import json
import re
from typing import Any, Literal

from pydantic import Field, ValidationError, field_validator

from gatehouse.configuration.strict import Strict
from gatehouse.configuration.yaml_lines import in_words
from gatehouse.errors import ConfigurationError
from gatehouse.runtime.variables import ENGINE

_MEMORY = re.compile(r"([0-9]+(?:\.[0-9]+)?)([KMGT])(i?)")


class Engine(Strict):
    """Where the pieces of a stage run."""

    kind: Literal["local", "ray", "indexed"] = Field(
        "local",
        description="`local` runs them in processes of the task's own machine, `ray` on a Ray cluster, `indexed` in "
        "pods of an Indexed Job.",
    )
    workers: int = Field(
        0,
        ge=0,
        description="Number of pieces that run at the same time; 0 for as many as the processors hold, for 4 in pods "
        "that are started for the stage.",
    )
    cpus: int = Field(1, ge=1, description="Processors of each worker.")
    memory: str = Field(
        "",
        description="Memory of each worker, such as 4G; empty for an equal share of its machine's memory, for 4G in "
        "pods that are started for the stage.",
    )
    address: str = Field(
        "",
        description="Of a Ray cluster: http://ray-head:8265 sends it a job, ray-head:6379 connects from one of its "
        "nodes; empty for RAY_ADDRESS, and without that for a RayJob, which a task in a cluster starts. Only for ray.",
    )

    @field_validator("memory")
    @classmethod
    def _some_memory(cls, memory: str) -> str:
        if memory and not ((match := _MEMORY.fullmatch(memory)) and float(match[1])):
            raise ValueError(f"expected an amount of memory, more than none, as 4G or 512Mi, found {memory!r}")
        return memory

    @property
    def needs_ray(self) -> bool:
        """Whether the task itself needs the package ray: to connect, or to start pods of its own image."""
        return self.kind == "ray" and not self.address.startswith(("http://", "https://"))

    @property
    def memory_bytes(self) -> int:
        """Memory of each worker in bytes; 0 for an equal share."""
        if not (match := _MEMORY.fullmatch(self.memory)):
            return 0
        return int(float(match[1]) * (1024 if match[3] else 1000) ** (1 + "KMGT".index(match[2])))


def engine_of(text: str, name: str = ENGINE) -> Engine:
    """The engine in the JSON `text`, called `name`; an empty text is the local engine.

    Raises ConfigurationError with every problem.
    """
    try:
        body: Any = json.loads(text) if text.strip() else {}
        return Engine.model_validate(body)
    except json.JSONDecodeError as error:
        raise ConfigurationError(f'{name}: expected JSON as {{"kind": "local"}}, found {error}.') from None
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, line['loc']))}: {in_words(line)}" for line in error.errors())
        raise ConfigurationError(f"{name} is not valid: {problems}.") from None
