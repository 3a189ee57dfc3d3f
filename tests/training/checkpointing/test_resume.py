"""Resume: whatever is killed whenever, the run ends in the bits of one that was never interrupted."""

import random
from pathlib import Path
from typing import Any

import pytest

from gatehouse.store.objects.local import LocalObjects
from gatehouse.training.checkpointing.checkpointer import Checkpointer
from gatehouse.training.checkpointing.record import CheckpointStore
from gatehouse.training.spec import CheckpointSpec
from tests.training.checkpointing.conftest import Rehearse

STEPS, EVERY = 20, 3
WORLDS = [("ddp", 1), ("ddp", 2), ("ddp", 4), ("fsdp", 2)]


@pytest.fixture(scope="module")
def whole(rehearse: Rehearse, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int], dict[str, Any]]:
    """Runs that nothing interrupts, by kind and world size."""
    folder = tmp_path_factory.mktemp("whole")
    return {
        (kind, world_size): rehearse(
            kind=kind, world_size=world_size, folder=folder / f"{kind}-{world_size}", steps=STEPS, every=EVERY
        )
        for kind, world_size in WORLDS
    }


@pytest.mark.parametrize(("kind", "world_size"), WORLDS)
def test_a_run_killed_at_random_steps_ends_in_the_same_bits(
    rehearse: Rehearse, tmp_path: Path, whole: dict[tuple[str, int], dict[str, Any]], kind: str, world_size: int
) -> None:
    expected = whole[kind, world_size]
    assert expected["codes"] == [0] * world_size and expected["first"] == 0
    draw = random.Random(f"{kind}{world_size}")
    done = 0
    for kill in sorted(draw.sample(range(EVERY, STEPS), 2)):
        request = {"kind": kind, "world_size": world_size, "folder": tmp_path, "steps": STEPS, "every": EVERY}
        ended = rehearse(**request, kill=[draw.randrange(world_size), kill])
        assert -9 in ended["codes"]
        done = max(done, kill)
    last = rehearse(**request)
    assert last["codes"] == [0] * world_size
    # The kill may come while the last checkpoint is written.
    assert 0 <= done - last["first"] <= 2 * EVERY, "more was lost than the checkpoint that was being written"
    assert (last["digest"], last["seen"]) == (expected["digest"], expected["seen"])


def test_a_run_killed_at_any_moment_ends_in_the_same_bits(
    rehearse: Rehearse, tmp_path: Path, whole: dict[tuple[str, int], dict[str, Any]]
) -> None:
    for seconds in (0.35, 0.6, 0.9):
        rehearse(world_size=2, folder=tmp_path, steps=STEPS, every=1, pause=0.05, kill_after=seconds)
    last = rehearse(world_size=2, folder=tmp_path, steps=STEPS, every=EVERY)
    assert (last["digest"], last["seen"]) == (whole["ddp", 2]["digest"], whole["ddp", 2]["seen"])


def test_a_preempted_run_is_saved_at_the_step_that_all_ranks_agreed_on(
    rehearse: Rehearse, tmp_path: Path, whole: dict[tuple[str, int], dict[str, Any]]
) -> None:
    ended = rehearse(world_size=2, folder=tmp_path, steps=STEPS, every=1000, pause=0.1, flag_after=0.8, grace=20)
    assert ended["codes"] == [0, 0]
    (step, saved), (other, _) = ended["preempted"]
    assert saved and step == other and 0 < step < STEPS
    last = rehearse(world_size=2, folder=tmp_path, steps=STEPS, every=1000)
    assert (last["first"], last["digest"]) == (step, whole["ddp", 2]["digest"])


def test_parts_that_one_rank_cannot_write_do_not_make_the_others_wait(rehearse: Rehearse, tmp_path: Path) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "steps").write_text("a file where a folder should be")
    ended = rehearse(world_size=2, folder=tmp_path, steps=2, every=2, broken=1)
    assert ended["codes"] == [0, 0]
    assert not ended["written"] and list(_store(tmp_path).saved()) == []
    assert ended["seconds"] < 30, "rank 0 waited for parts that were lost"


def test_a_checkpoint_of_another_number_of_processes_is_not_used(rehearse: Rehearse, tmp_path: Path) -> None:
    rehearse(world_size=2, folder=tmp_path, steps=3, every=3)
    assert Checkpointer(tmp_path, CheckpointSpec()).load(Anything()) is None
    assert rehearse(world_size=1, folder=tmp_path, steps=2, every=1)["first"] == 0
    assert _first(tmp_path) == 2, "checkpoints of earlier steps do not count beside those that are not used"


def _rewrite(path: Path, data: bytes) -> None:
    path.chmod(0o644)
    path.write_bytes(data)


def test_a_torn_checkpoint_is_recognised_and_the_one_before_it_is_used(rehearse: Rehearse, tmp_path: Path) -> None:
    assert rehearse(world_size=1, folder=tmp_path, steps=9, every=3)["written"]
    store = _store(tmp_path)
    third, second, _ = (tmp_path / "steps" / name for name in store.names())
    (tensors,) = third.glob("*.safetensors")
    whole_bytes = tensors.read_bytes()
    flipped = bytearray(whole_bytes)
    flipped[len(flipped) // 2] ^= 1
    for damaged in (bytes(flipped), whole_bytes[:-1], b""):
        _rewrite(tensors, damaged)
        assert _first(tmp_path) == 6
    _rewrite(tensors, whole_bytes)
    assert _first(tmp_path) == 9
    tensors.unlink()
    assert _first(tmp_path) == 6
    (third / "manifest.json").unlink()
    assert _first(tmp_path) == 6
    manifest = second / "manifest.json"
    _rewrite(manifest, manifest.read_bytes().replace(b"step", b"stop", 1))
    assert _first(tmp_path) == 3
    assert [saved.step for saved in store.saved()] == [3]


def _store(folder: Path) -> CheckpointStore:
    return CheckpointStore(LocalObjects(folder), "steps")


class Anything:
    """A state that takes what a checkpoint has."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        assert state["step"] in (2, 3, 6, 9)


def _first(folder: Path) -> int:
    step = Checkpointer(folder, CheckpointSpec()).load(Anything())
    assert step is not None
    return step
