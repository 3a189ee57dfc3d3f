"""The checkpointer in one process: what is kept, what is asked of the store, and what a state may hold."""

import mmap
import os
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from xxhash import xxh3_128

from gatehouse.errors import StoreError
from gatehouse.store.store import ArtifactStore
from gatehouse.training.checkpointing import writer as part
from gatehouse.training.checkpointing.checkpointer import Checkpointer
from gatehouse.training.checkpointing.format import CheckpointStore
from gatehouse.training.checkpointing.plan import flatten, unflatten
from gatehouse.training.checkpointing.writer import (
    FINISHED,
    HEAD,
    WRITTEN,
    Request,
    Share,
    near,
    status_of,
    write_share,
)
from gatehouse.training.spec import CheckpointSpec
from gatehouse.training.trainer import random_state, seed_all, set_random_state
from tests.stand_ins.servers import BUCKET, Proxy, s3_server


class State:
    def __init__(self, size: int = 5) -> None:
        self.weights, self.note = torch.zeros(size), "new"

    def state_dict(self) -> dict[str, Any]:
        return {"weights": self.weights, "note": self.note, "rank": {"loss": 0.5}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.weights, self.note = state["weights"], state["note"]
        assert state["rank"] == {"loss": 0.5}


def _train(checkpointer: Checkpointer, state: State, steps: range, best: tuple[int, ...] = ()) -> None:
    for step in steps:
        state.weights += 1
        state.note = f"step {step}"
        checkpointer.maybe_save(state, step, best=step in best)
    assert checkpointer.finish()


def test_the_last_three_and_the_best_are_kept(tmp_path: Path) -> None:
    checkpointer = Checkpointer(tmp_path, CheckpointSpec(every_steps=2))
    _train(checkpointer, State(), range(1, 13), best=(3, 5))
    assert [saved.step for saved in near(tmp_path).saved()] == [12, 10, 8, 5]


def test_a_checkpoint_holds_the_state_of_its_moment_while_training_goes_on(tmp_path: Path) -> None:
    state = State(300_000)
    checkpointer = Checkpointer(tmp_path, CheckpointSpec())
    assert checkpointer.last == "No checkpoint was taken before."
    checkpointer.save(state, 1, ("interval",))
    assert checkpointer.last == "The last checkpoint was taken after step 1."
    for _ in range(20):
        state.weights += 1
    assert checkpointer.finish()
    resumed = State(300_000)
    assert Checkpointer(tmp_path, CheckpointSpec()).load(resumed) == 1
    assert torch.equal(resumed.weights, torch.zeros(300_000))


@pytest.fixture(scope="module")
def bucket() -> Iterator[Proxy]:
    with s3_server() as proxy:
        yield proxy


def test_a_checkpoint_of_a_lost_machine_comes_from_the_artifact_store(
    tmp_path: Path, bucket: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**bucket.environment, "GATEHOUSE_CACHE": str(tmp_path / "cache")}.items():
        monkeypatch.setenv(name, value)
    far = f"s3://{BUCKET}/store"
    state = State()
    _train(Checkpointer(tmp_path / "pod-1", CheckpointSpec(every_steps=2), far=far, name="run"), state, range(1, 9))
    resumed = State()
    assert Checkpointer(tmp_path / "pod-2", CheckpointSpec(), far=far, name="run").load(resumed) == 8
    assert (resumed.note, resumed.weights.tolist()) == (state.note, state.weights.tolist())
    store = ArtifactStore.open(far)
    there = CheckpointStore(store.objects, "scratch/checkpoints/run")
    assert [saved.step for saved in there.saved()] == [8, 6, 4]
    assert list(store.references()) == [], "a checkpoint shows among the artifacts"


def test_a_disk_that_cannot_be_written_does_not_end_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpointer = Checkpointer(tmp_path / "c", CheckpointSpec(every_steps=1))
    (tmp_path / "c" / "steps").write_text("a file where a folder should be")
    (tmp_path / "c" / "tmp").write_text("and another")
    checkpointer.save(State(), 1, ("interval",))
    assert not checkpointer.finish(), "what was not written counts as written"


KEYS = st.text("abc.", min_size=1, max_size=3)
LEAVES = st.none() | st.floats(allow_nan=False) | st.text(max_size=3) | st.integers(0, 3).map(torch.arange)
STATES = st.dictionaries(
    KEYS,
    st.recursive(
        LEAVES | st.lists(st.integers(), max_size=3),
        lambda inner: st.dictionaries(KEYS, inner, max_size=3),
        max_leaves=8,
    ),
    max_size=4,
)


@settings(max_examples=40)
@given(STATES)
def test_a_state_comes_back_as_it_was(state: dict[str, Any]) -> None:
    tensors, values = flatten(state)
    assert _plain(unflatten(values | tensors)) == _plain(state)


def _plain(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _plain(child) for key, child in node.items()}
    return ("tensor", node.tolist()) if isinstance(node, Tensor) else node


def test_generators_go_on_where_they_were() -> None:
    import random

    import numpy as np

    seed_all(51)
    random.gauss(0, 1), np.random.normal(), torch.rand(3)
    state = random_state(torch.device("cpu"))
    tensors, values = flatten(state)
    drawn = (random.gauss(0, 1), np.random.normal(), torch.rand(3).tolist())
    seed_all(6)
    set_random_state(unflatten({**values, **tensors}), torch.device("cpu"))
    assert (random.gauss(0, 1), np.random.normal(), torch.rand(3).tolist()) == drawn


def test_a_part_that_a_killed_attempt_left_of_another_step_is_not_taken(tmp_path: Path) -> None:
    def write(rank: int, step: int) -> None:
        share = Share(str(tmp_path), rank, 2, (), 0, True, 3, True, "", "", peers_seconds=0.1)
        write_share(share, Request(1, step, ("interval",), {}), memoryview(b""), lambda: False, lambda: None)

    write(1, step=50)
    with pytest.raises(StoreError, match="Checkpoint 1 stays incomplete"):
        write(0, step=45)
    assert list(near(tmp_path).saved()) == []


@pytest.mark.parametrize("folder", [None, Path("/dev/shm")])
@pytest.mark.parametrize("size", [0, 10, 8192, (8 << 20) + 192])
def test_a_file_is_whole_whatever_its_length_and_the_file_system(
    tmp_path: Path, folder: Path | None, size: int
) -> None:
    memory = mmap.mmap(-1, size + 8192)
    memory[:] = os.urandom(size + 8192)
    for start in (4096, 3):  # Whole pages of memory are written past the page cache, others cannot be.
        file = (folder or tmp_path) / uuid.uuid4().hex
        with memoryview(memory) as view, view[start : start + size] as tensors:
            digest = part._write_file(file, tensors, far=False)
            try:
                assert file.read_bytes() == bytes(tensors)
            finally:
                file.unlink()
            assert digest == xxh3_128(tensors).hexdigest()


READS = 1_000_000


def test_a_million_readings_beside_a_writing_process_hold_no_false_number() -> None:
    memory = mmap.mmap(-1, HEAD)  # Anonymous and shared: a child sees what its parent sees.
    status = status_of(memory)
    status[WRITTEN], status[FINISHED] = 1, 1
    writer = os.fork()
    if writer == 0:
        while True:
            status[WRITTEN] += 1
            status[FINISHED] = status[WRITTEN]
    try:
        written = finished = reads = 1
        while reads < READS or finished < 1000:
            before, finished = finished, status[FINISHED]
            assert finished >= before
            before, written = written, status[WRITTEN]
            assert written >= max(before, finished)
            reads += 2
    finally:
        os.kill(writer, signal.SIGKILL)
        os.waitpid(writer, 0)
