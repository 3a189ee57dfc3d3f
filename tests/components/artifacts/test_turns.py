"""Turns: who comes second waits for a holder that lives, and takes over from one that was killed."""

import threading
import time
from pathlib import Path

from gatehouse.components.artifacts.records import author, create_record
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.artifacts.turns import TURNS, Turn


def test_the_second_waits_until_the_first_has_ended(tmp_path: Path) -> None:
    objects = ArtifactStore.open(str(tmp_path)).objects
    order: list[str] = []

    def second() -> None:
        with Turn(objects, "run a", beat=1.0):
            order.append("second")

    with Turn(objects, "run a"):
        waiting = threading.Thread(target=second)
        waiting.start()
        waiting.join(0.2)
        order.append("first")
    waiting.join()
    assert order == ["first", "second"] and not list(objects.list(TURNS))


def test_the_holder_renews_its_record(tmp_path: Path) -> None:
    objects = ArtifactStore.open(str(tmp_path)).objects
    with Turn(objects, "run a", beat=0.01):
        (key,) = objects.list(TURNS)
        first, until = objects.stat(key), time.monotonic() + 60
        while objects.stat(key) == first and time.monotonic() < until:
            time.sleep(0.01)
        assert objects.stat(key) not in (first, None)


def test_another_thing_has_turns_of_its_own(tmp_path: Path) -> None:
    objects = ArtifactStore.open(str(tmp_path)).objects
    with Turn(objects, "run a"), Turn(objects, "run b"):
        assert len(list(objects.list(TURNS))) == 2


def test_the_turn_of_who_was_killed_is_taken(tmp_path: Path) -> None:
    objects = ArtifactStore.open(str(tmp_path)).objects
    with Turn(objects, "run a"):
        (key,) = objects.list(TURNS)
    assert create_record(objects, key, author())
    with Turn(objects, "run a", beat=0.01):
        assert list(objects.list(TURNS)) == [key]
    assert not list(objects.list(TURNS))
