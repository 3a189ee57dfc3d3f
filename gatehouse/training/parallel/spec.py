"""How many processes train, and what each of them has of rows and model."""

from typing import Literal

from pydantic import Field, model_validator

from gatehouse.store.identity import Spec


class ParallelismSpec(Spec):
    """The processes of a run.

    The number of processes and threads changes the order of floating-point sums and so the bits of the weights.
    """

    processes: int = Field(2, ge=1, le=4096, description="Workers that torchrun starts.")
    threads: int = Field(1, ge=1, le=256, description="Threads of each worker.")
    data: Literal["ddp", "fsdp"] = Field(
        "ddp", description="Whether each data-parallel process holds all weights (`ddp`), or a part of each (`fsdp`)."
    )
    tensor: int = Field(1, ge=1, le=64, description="Tensor parallelism: processes that share each matrix product.")
    pipeline: int = Field(
        1, ge=1, le=64, description="Pipeline parallelism: stages that the model's blocks are divided into."
    )
    pipeline_schedule: Literal["1f1b", "gpipe"] = Field("1f1b", description="Order of a pipeline's micro-batches.")

    @property
    def model_size(self) -> int:
        """Processes that share one copy of the model."""
        return self.tensor * self.pipeline

    @property
    def data_size(self) -> int:
        """Processes, or groups of them, that each take a share of the rows."""
        return self.processes // self.model_size

    @model_validator(mode="after")
    def _whole_copies(self) -> "ParallelismSpec":
        if self.processes % self.model_size:
            raise ValueError(
                f"processes {self.processes} must be a multiple of tensor {self.tensor} x pipeline {self.pipeline}"
            )
        return self
