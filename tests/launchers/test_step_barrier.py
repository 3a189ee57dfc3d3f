"""What ranks agree on at a step boundary, one boundary later."""

from types import SimpleNamespace

import pytest
import torch.distributed as dist

from gatehouse.launchers.step_barrier import StepBarrier


def test_a_checkpoint_that_is_due_is_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    # The other rank sees what this one sees: the sum over both is what this one sent.
    for name, value in {
        "is_initialized": lambda: True,
        "get_world_size": lambda: 2,
        "new_group": lambda **_: object(),
        "all_reduce": lambda *_, **__: SimpleNamespace(wait=lambda: None),
    }.items():
        monkeypatch.setattr(dist, name, value)
    barrier, saved, due = StepBarrier(), [], False
    for step in range(1, 25):
        if due:
            saved.append(step)
        due = barrier.agree(step, due=step - (saved[-1] if saved else 0) >= 10).due
    assert saved == [12, 24]
