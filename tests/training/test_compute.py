"""What decides bits and lives in a process."""

import sys

import pytest
import torch

from gatehouse.errors import ConfigurationError
from gatehouse.training.compute import prepare_process
from gatehouse.training.spec import ComputeSpec


def test_a_rank_without_a_gpu_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    with pytest.raises(ConfigurationError, match="expected a GPU for each process of this machine, found 0"):
        prepare_process(ComputeSpec(device="cuda"), 1)


@pytest.mark.parametrize("deterministic", [True, False])
def test_determinism_is_set_without_the_compiler(deterministic: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch._inductor.config", None)
    before, threads = torch.get_deterministic_debug_mode(), torch.get_num_threads()
    try:
        prepare_process(ComputeSpec(deterministic=deterministic), threads)
        assert torch.are_deterministic_algorithms_enabled() is deterministic
        assert not torch.is_deterministic_algorithms_warn_only_enabled()
    finally:
        torch.set_deterministic_debug_mode(before)
