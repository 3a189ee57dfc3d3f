"""Where statistics are computed. It never changes what they are."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class StatisticsSpec(BaseModel):
    """The machinery behind statistics: threads of one machine, or Apache Beam for what one machine does not hold."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    engine: Literal["in_process", "beam"] = Field("in_process", description="`beam` needs gatehouse[beam].")
    threads: int = Field(0, ge=0, description="In process: how many; 0 for one a core, at most 8.")
    options: tuple[str, ...] = Field(
        (), description="Pipeline options of Beam, e.g. --runner=FlinkRunner; without any, Beam runs in the process."
    )
