"""Where and how the arithmetic of a network happens: device, precision, determinism, compilation."""

from typing import Literal

from pydantic import Field, model_validator

from gatehouse.store.identity import Spec


class ComputeSpec(Spec):
    """The arithmetic of every process; all of it may change the bits of a model."""

    device: Literal["cpu", "cuda"] = Field(
        "cpu", description="Device of the computation; processes communicate by gloo (cpu) or NCCL (cuda)."
    )
    precision: Literal["fp32", "bf16", "fp16"] = Field(
        "fp32", description="Precision of the computation; weights stay fp32."
    )
    deterministic: bool = Field(
        True, description="Whether the same settings give the same bits again; on a GPU this costs time."
    )
    compile: bool = Field(False, description="Compile the model's blocks with `torch.compile`.")
    activation_checkpointing: bool = Field(
        False,
        description="Activation checkpointing: compute activations again in the backward pass instead of keeping them.",
    )

    @model_validator(mode="after")
    def _compilable(self) -> "ComputeSpec":
        if self.device == "cpu" and self.precision == "fp16" and self.compile:
            raise ValueError("compile: fp16 on a CPU is not compiled; use bf16")
        return self
