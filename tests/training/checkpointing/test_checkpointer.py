"""The checkpointer in one process: what is kept, what is asked of the store, and what a state may hold."""

import random
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gatehouse.store.store import ArtifactStore
from gatehouse.training.checkpointing.checkpointer import Checkpointer
from gatehouse.training.checkpointing.leaves import flatten
from gatehouse.training.checkpointing.record import CheckpointStore
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


def _steps(store: CheckpointStore) -> list[int]:
    return [saved.step for saved in store.saved()]


def test_the_last_three_and_the_best_are_kept(tmp_path: Path) -> None:
    checkpointer = Checkpointer(tmp_path, CheckpointSpec(every_steps=2))
    _train(checkpointer, State(), range(1, 13), best=(3, 5))
    assert _steps(checkpointer.store) == [12, 10, 8, 5]
    assert len(checkpointer.store.names()) == 4 and not list((tmp_path / "tmp").glob("*-0"))


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
    second = Checkpointer(tmp_path / "pod-2", CheckpointSpec(), far=far, name="run")
    assert second.load(resumed) == 8
    assert (resumed.note, resumed.weights.tolist()) == (state.note, state.weights.tolist())
    assert _steps(second.store) == [8, 6, 4] and second.store.prefix == "scratch/checkpoints/run"
    assert list(ArtifactStore.open(far).references()) == [], "a checkpoint shows among the artifacts"


def test_a_disk_that_cannot_be_written_does_not_end_training(tmp_path: Path) -> None:
    checkpointer = Checkpointer(tmp_path / "c", CheckpointSpec(every_steps=1))
    (tmp_path / "c" / "steps").write_text("a file where a folder should be")
    checkpointer.save(State(), 1, ("interval",))
    assert not checkpointer.finish(), "what was not written counts as written"
    (tmp_path / "c" / "steps").unlink()
    _train(checkpointer, State(), range(2, 3))
    assert _steps(checkpointer.store) == [2]


def test_an_earlier_start_that_still_writes_does_not_meet_the_files_of_the_next_one(tmp_path: Path) -> None:
    earlier, state = Checkpointer(tmp_path, CheckpointSpec(every_steps=1)), State()
    _train(earlier, state, range(1, 2))
    resumed = State()
    later = Checkpointer(tmp_path, CheckpointSpec(every_steps=1))
    assert later.load(resumed) == 1
    _train(earlier, state, range(2, 4))
    _train(later, resumed, range(2, 4))
    assert _steps(later.store) == [3, 2, 3]
    assert Checkpointer(tmp_path, CheckpointSpec()).load(final := State()) == 3 and final.weights[0] == 3


def test_a_checkpoint_that_takes_longer_than_the_machine_has_left_does_not_count_as_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpointer, disk = Checkpointer(tmp_path, CheckpointSpec(every_steps=1)), threading.Event()
    put_file = CheckpointStore.put_file

    def slowly(store: CheckpointStore, name: str, path: Path) -> str:
        disk.wait(10)
        return put_file(store, name, path)

    monkeypatch.setattr(CheckpointStore, "put_file", slowly)
    assert not checkpointer.save_now(State(), 1, ("preemption",), 0.05)
    disk.set()
    assert checkpointer.finish() and _steps(checkpointer.store) == [1]


def test_a_preemption_writes_the_checkpoint_of_a_step_that_failed_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpointer, put_file = Checkpointer(tmp_path, CheckpointSpec(every_steps=1)), CheckpointStore.put_file

    def on_a_full_disk(store: CheckpointStore, name: str, path: Path) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(CheckpointStore, "put_file", on_a_full_disk)
    checkpointer.save(State(), 1, ("interval",))
    assert not checkpointer.finish()
    monkeypatch.setattr(CheckpointStore, "put_file", put_file)
    assert checkpointer.save_now(State(), 1, ("preemption",), 10.0) and _steps(checkpointer.store) == [1]


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


class Held:
    def __init__(self, state: dict[str, Any]) -> None:
        self.state = state

    def state_dict(self) -> dict[str, Any]:
        return self.state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.state = state


def _through_a_checkpoint(state: dict[str, Any], current: dict[str, Any]) -> dict[str, Any]:
    """A state, saved, and loaded by a run whose state is `current`."""
    with tempfile.TemporaryDirectory() as folder:
        writing = Checkpointer(Path(folder), CheckpointSpec())
        writing.save(Held(state), 1, ("interval",))
        assert writing.finish()
        Checkpointer(Path(folder), CheckpointSpec()).load(resumed := Held(current))
    return resumed.state


@settings(max_examples=40, deadline=None)
@given(STATES)
def test_a_state_comes_back_as_it_was(state: dict[str, Any]) -> None:
    assert _plain(_through_a_checkpoint(state, state)) == _plain(state)


def _plain(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _plain(child) for key, child in node.items()}
    return ("tensor", node.tolist()) if isinstance(node, Tensor) else node


def test_generators_go_on_where_they_were() -> None:
    cpu = torch.device("cpu")
    seed_all(51)
    random.gauss(0, 1), np.random.normal(), torch.rand(3)
    state = random_state(cpu)
    drawn = (random.gauss(0, 1), np.random.normal(), torch.rand(3).tolist())
    seed_all(6)
    set_random_state(_through_a_checkpoint(state, random_state(cpu)), cpu)
    assert (random.gauss(0, 1), np.random.normal(), torch.rand(3).tolist()) == drawn


def test_tensors_are_filled_in_place_and_one_that_grew_comes_whole() -> None:
    current = {"same": torch.zeros(2), "grew": torch.zeros(1)}
    loaded = _through_a_checkpoint({"same": torch.ones(2), "grew": torch.ones(3)}, current)
    assert current["same"].tolist() == [1, 1] and loaded["same"].data_ptr() == current["same"].data_ptr()
    assert flatten(loaded)[0]["grew"].tolist() == [1, 1, 1]
