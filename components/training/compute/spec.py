"""Where and how the arithmetic of a network happens: device, precision, determinism, compilation."""

from typing import Literal

from pydantic import Field, model_validator

from gatehouse.components.artifacts.identity import Spec


class ComputeSpec(Spec):
    """The arithmetic of every process; all of it may change the bits of a model."""

    device: Literal["cpu", "cuda"] = Field("cpu", description="Where the arithmetic happens (gloo or NCCL between).")
    precision: Literal["fp32", "bf16", "fp16"] = Field("fp32", description="Of the arithmetic; weights stay fp32.")
    deterministic: bool = Field(
        True, description="The same bits again from the same settings; on a GPU this costs time."
    )
    compile: bool = Field(False, description="Compile the model's blocks with `torch.compile`.")
    activation_checkpointing: bool = Field(False, description="Compute activations twice instead of keeping them.")

    @model_validator(mode="after")
    def _compilable(self) -> "ComputeSpec":
        if self.device == "cpu" and self.precision == "fp16" and self.compile:
            raise ValueError("compile: fp16 on a CPU is not compiled; use bf16")
        return self
