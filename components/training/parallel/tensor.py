"""Tensor parallelism: linear layers cut by columns or rows over the processes of the tensor axis."""

from collections.abc import Callable

from torch import nn
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, parallelize_module

from gatehouse.components.training.parallel.mesh import Layout
from gatehouse.errors import GatehouseError

_STYLES: dict[str, type[ParallelStyle]] = {"columns": ColwiseParallel, "rows": RowwiseParallel}


class NotDivisibleError(GatehouseError):
    """A model lacks what a parallelism needs of it."""


def plan_of(model: nn.Module) -> dict[str, str]:
    """How a whole model's layers are cut: `columns` or `rows` by module name.

    Raises:
        NotDivisibleError: if the model has no `tensor_plan()`.
    """
    plan: Callable[[], dict[str, str]] | None = getattr(model, "tensor_plan", None)
    if plan is None:
        raise NotDivisibleError(
            f"{type(model).__name__} cannot be tensor-parallel: give it a method tensor_plan() that returns `columns` "
            "or `rows` by the name of a linear layer, or set tensor_parallel to 1."
        )
    return plan()


def divide(part: nn.Module, plan: dict[str, str], layout: Layout) -> None:
    """Cut the layers that `plan` names, in place; what it does not name is whole on every process.

    Args:
        part: A model or a stage of one.
        plan: Of the whole model; a stage takes what it has of it.
        layout: Holds the mesh.
    """
    assert layout.mesh is not None
    here = {name for name, _ in part.named_modules()}
    parallelize_module(
        part, layout.mesh["tensor"], {name: _STYLES[how]() for name, how in plan.items() if name in here}
    )
