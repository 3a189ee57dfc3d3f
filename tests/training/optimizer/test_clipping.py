"""The norm of a gradient and its clipping, as numbers."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from gatehouse.training.optimizer.clipping import gradient_norm, scale_gradients

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
    assert [float(one.grad) for one in parameters if one.grad is not None] == pytest.approx(expected, rel=1e-5)
