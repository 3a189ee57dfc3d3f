"""Settings of single tasks in a project: resources of pods, owners, and what happens after a failure."""

import re
from typing import Any, Literal, TypeVar

from pydantic import Field, field_validator

from gatehouse.configuration.strict import Strict
from gatehouse.project.signatures import pods
from gatehouse.store.image import stages_of

_Value = TypeVar("_Value")


class TaskResources(Strict):
    """Resources of the pod of one task; empty values stay as its stage declares them."""

    cpu: str = Field("", description="CPUs, as Kubernetes writes them.")
    memory: str = Field("", description="Memory, such as 32G or 512Mi.")
    accelerator: int = Field(0, ge=0, le=64, description="Number of accelerators.")
    accelerator_type: str = Field("nvidia.com/gpu", description="Resource name of the accelerators.")

    @field_validator("cpu", mode="before")
    @classmethod
    def _number(cls, value: Any) -> Any:
        """YAML reads `cpu: 8` as a number."""
        return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value

    @field_validator("cpu")
    @classmethod
    def _some_cpu(cls, cpu: str) -> str:
        if cpu and not (re.fullmatch(r"[0-9]+m|[0-9]+(\.[0-9]+)?", cpu) and float(cpu.rstrip("m"))):
            raise ValueError(f"expected CPUs, more than none, as 4, 0.5 or 500m, found {cpu!r}")
        return cpu

    @field_validator("memory")
    @classmethod
    def _some_memory(cls, memory: str) -> str:
        if memory and not (re.fullmatch(r"[0-9]+(\.[0-9]+)?[EPTGMK]i?", memory) and float(memory.rstrip("EPTGMKi"))):
            raise ValueError(f"expected an amount of memory, more than none, as 32G or 512Mi, found {memory!r}")
        return memory


def of_stages(settings: dict[str, _Value]) -> dict[str, _Value]:
    """Settings by stage, if every key is the name of a stage that a component runs.

    Raises ValueError, naming the other keys.
    """
    stages = {stage.name for component in pods() for stage in stages_of(component)}
    if unknown := sorted(settings.keys() - stages):
        raise ValueError(f"expected names of stages ({', '.join(sorted(stages))}), found {', '.join(unknown)}")
    return settings


def of_components(settings: dict[str, _Value]) -> dict[str, _Value]:
    """Settings by component, if a pipeline has a task of every one.

    Raises ValueError, naming the other keys, and the components whose pods run them.
    """
    if unknown := sorted(settings.keys() - set(pods())):
        runs = {stage.name: component for component in pods() for stage in stages_of(component)}
        hints = [f"{runs[name]} instead of {name}, which its pod runs" for name in unknown if name in runs]
        raise ValueError(f"expected {', '.join(hints or pods())}, found {', '.join(unknown)}")
    return settings


class StageSettings(Strict):
    """The owner of a stage, and what happens if it fails."""

    owner: str = Field("", max_length=200, description="Who is named if the task fails; empty for the project's owner.")
    on_failure: Literal["stop", "warn"] = Field(
        "stop",
        description="`stop` ends the run; `warn` continues with a warning, and is allowed only if no decision "
        "depends on the task.",
    )
    retries: int | None = Field(
        None, ge=1, le=10, description="How many times it is tried again, if that is safe; null for twice."
    )
