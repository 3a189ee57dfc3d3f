"""The optimizer steps a process's own parts of spread tensors, to the bits of a step on the whole ones."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore

from gatehouse.training.optimizer import build_optimizer, gradient_norm, optimizer_state, scale_gradients
from gatehouse.training.spec import OptimizerSpec

if TYPE_CHECKING:
    from torch.distributed.tensor import Placement

SPEC = OptimizerSpec(weight_decay=0.1)
ROWS, COLUMNS = 5, 3


@pytest.fixture
def second_of_two() -> Iterator[None]:
    """This process is rank 1 of two; the other one does not exist."""
    dist.init_process_group("fake", store=FakeStore(), rank=1, world_size=2)
    yield
    dist.destroy_process_group()


def _stepped(weight: Tensor, gradients: list[Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
    model = nn.Module()
    model.weight, model.bias = nn.Parameter(weight), nn.Parameter(torch.ones(2))
    optimizer = build_optimizer(model, SPEC)
    for number, gradient in enumerate(gradients):
        model.weight.grad, model.bias.grad = gradient, torch.ones(2)
        optimizer.param_groups[0]["lr"] = 0.1 / (1 + number)
        optimizer.step()
    return model.weight.detach(), optimizer_state(model, optimizer)


@pytest.mark.parametrize("cut", [True, False], ids=["cut", "whole"])
def test_a_spread_weight_takes_the_bits_of_a_whole_one(second_of_two: None, cut: bool) -> None:
    from torch.distributed.tensor import DTensor, Replicate, Shard

    came = Shard(0) if cut else Replicate()
    mesh = init_device_mesh("cpu", (2,))
    weight, gradients = torch.randn(ROWS, COLUMNS), list(torch.randn(3, ROWS, COLUMNS))
    whole_weight, whole_state = _stepped(weight.clone(), gradients)

    def spread(tensor: Tensor, placement: "Placement") -> Tensor:
        part = tensor.chunk(2)[1].clone() if placement.is_shard() else tensor
        return DTensor.from_local(part, mesh, [placement], run_check=False, shape=tensor.shape, stride=tensor.stride())

    stepped, state = _stepped(spread(weight, Shard(0)), [spread(gradient, came) for gradient in gradients])
    assert state.keys() == whole_state.keys()
    for tensor, whole in [(stepped, whole_weight)] + [
        (state[f"weight.{slot}"], whole_state[f"weight.{slot}"]) for slot in ("exp_avg", "exp_avg_sq")
    ]:
        assert isinstance(tensor, DTensor), "a checkpoint could not be read by another number of processes"
        assert tensor.placements == (Shard(0),) and tensor.shape == whole.shape
        assert torch.equal(tensor.to_local(), whole.chunk(2)[1])
    assert torch.equal(state["bias.exp_avg"], whole_state["bias.exp_avg"])


ALONE = SimpleNamespace(mesh=None)


@pytest.mark.parametrize(
    ("most", "scale", "expected"),
    [(1.0, 1.0, [0.6, 0.8]), (1.0, 16.0, [0.6, 0.8]), (6.0, 1.0, [3.0, 4.0]), (6.0, 16.0, [3.0, 4.0])],
    ids=["clipped", "clipped and scaled", "small enough", "small enough and scaled"],
)
def test_a_gradient_of_norm_five_is_brought_down_to_the_limit(most: float, scale: float, expected: list[float]) -> None:
    parameters = [nn.Parameter(torch.zeros(1)) for _ in range(3)]  # The last has no gradient.
    for parameter, value in zip(parameters, (3.0, 4.0), strict=False):
        parameter.grad = torch.tensor([value * scale])
    norm = gradient_norm(parameters, ALONE)  # type: ignore[arg-type]
    assert float(norm) == pytest.approx(5.0 * scale)
    scale_gradients(parameters, norm, most, scale)
    assert [float(parameter.grad) for parameter in parameters if parameter.grad is not None] == pytest.approx(
        expected, rel=1e-5
    )
