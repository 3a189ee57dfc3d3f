"""Resume: whatever is killed whenever, the run ends in the bits of one that was never interrupted."""

import random
from pathlib import Path

import pytest

from tests.components.training.checkpointing.conftest import Rehearse

STEPS, EVERY = 20, 3
WORLDS = [("ddp", 1), ("ddp", 2), ("ddp", 4), ("fsdp", 2)]


@pytest.mark.parametrize(("kind", "world"), WORLDS)
def test_a_run_killed_at_random_steps_ends_in_the_same_bits(
    rehearse: Rehearse, tmp_path: Path, kind: str, world: int
) -> None:
    whole = rehearse(kind=kind, world=world, folder=tmp_path / "whole", steps=STEPS, every=EVERY)
    assert whole["codes"] == [0] * world and whole["first"] == 0
    draw = random.Random(f"{kind}{world}")
    done = 0
    for kill in sorted(draw.sample(range(1, STEPS), 2)):
        ended = rehearse(
            kind=kind,
            world=world,
            folder=tmp_path / "cut",
            steps=STEPS,
            every=EVERY,
            kill=[draw.randrange(world), kill],
        )
        assert -9 in ended["codes"]
        done = max(done, kill)
    last = rehearse(kind=kind, world=world, folder=tmp_path / "cut", steps=STEPS, every=EVERY)
    assert last["codes"] == [0] * world
    assert done - last["first"] <= EVERY, "more steps were repeated than lie between two checkpoints"
    assert last["first"] > 0 or done < EVERY
    assert (last["digest"], last["seen"]) == (whole["digest"], whole["seen"])
