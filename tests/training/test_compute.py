"""What decides bits and lives in a process."""

import pytest

from gatehouse.errors import ConfigurationError
from gatehouse.training.compute import prepare_process
from gatehouse.training.spec import ComputeSpec


def test_a_rank_without_a_gpu_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    with pytest.raises(ConfigurationError, match="expected a GPU for each process of this machine, found 0"):
        prepare_process(ComputeSpec(device="cuda"), 1)
