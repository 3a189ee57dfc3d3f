"""Replicated data parallelism: what torch's own does, without the import of its compiler."""

import sys
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from gatehouse.training.compute.spec import ComputeSpec
from gatehouse.training.parallel.ddp import Replicated, replicate
from tests.training.specs import network


@pytest.fixture
def alone() -> Iterator[None]:
    """A process group of this process."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_a_model_that_is_not_compiled_does_without_the_compiler(alone: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch._dynamo", None)
    monkeypatch.delitem(vars(torch), "_dynamo", raising=False)
    model = nn.Linear(2, 1)
    replicated = replicate(model, network(processes=2))
    replicated(torch.ones(3, 2)).sum().backward()
    assert type(replicated) is Replicated and model.weight.grad is not None
    assert "_dynamo" not in vars(torch), "who asks the compiler later would get no answer"


def test_a_compiled_model_is_replicated_as_torch_does_it(alone: None) -> None:
    compiled = replicate(nn.Linear(2, 1), network(processes=2, compute=ComputeSpec(compile=True)))
    assert type(compiled) is DistributedDataParallel
