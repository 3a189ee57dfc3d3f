"""Turns: who comes second waits for a holder that lives, and takes over from one that was killed."""

import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from gatehouse.store import turns
from gatehouse.store.records import author, create_record
from gatehouse.store.store import ArtifactStore
from gatehouse.store.turns import TURNS, Turn, TurnLostError


def test_the_second_waits_until_the_first_has_ended(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    objects = ArtifactStore.open(str(tmp_path)).objects
    order: list[str] = []

    def second() -> None:
        with Turn(objects, "run a", beat=1.0):
            order.append("second")

    with Turn(objects, "run b"), Turn(objects, "run a"):
        waiting = threading.Thread(target=second)
        waiting.start()
        waiting.join(0.2)
        order.append("first")
    waiting.join()
    assert order == ["first", "second"] and not list(objects.list(TURNS))
    (message,) = caplog.messages
    assert message.startswith(f"run a: waiting for {author()['by']}, who holds the lock since 20")


def test_the_holder_renews_its_record(tmp_path: Path) -> None:
    objects = ArtifactStore.open(str(tmp_path)).objects
    with Turn(objects, "run a", beat=0.01):
        (key,) = objects.list(TURNS)
        first, until = objects.stat(key), time.monotonic() + 60
        while objects.stat(key) == first and time.monotonic() < until:
            time.sleep(0.01)
        assert objects.stat(key) not in (first, None)


def test_the_turn_of_who_was_killed_is_taken(tmp_path: Path) -> None:
    objects = ArtifactStore.open(str(tmp_path)).objects
    with Turn(objects, "run a"):
        (key,) = objects.list(TURNS)
    assert create_record(objects, key, author())
    with Turn(objects, "run a", beat=0.01):
        assert list(objects.list(TURNS)) == [key]
    assert not list(objects.list(TURNS))


def test_a_holder_that_renews_is_waited_for_however_long_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects, slept = ArtifactStore.open(str(tmp_path)).objects, 0
    with Turn(objects, "run a"):
        (key,) = objects.list(TURNS)
    create_record(objects, key, author())

    def sleep(_: float) -> None:
        nonlocal slept
        slept += 1
        before = objects.stat(key)
        assert before is not None
        if slept == 40:
            objects.delete(key, before.generation)
        while slept % 4 == 0 and objects.stat(key) == before:
            objects.renew(key)

    monkeypatch.setattr(turns, "time", SimpleNamespace(monotonic=lambda: float(slept), sleep=sleep))
    with Turn(objects, "run a", beat=1.0):
        assert slept == 40


def test_a_holder_learns_that_another_took_its_turn(tmp_path: Path) -> None:
    objects = ArtifactStore.open(str(tmp_path)).objects
    with Turn(objects, "run a", beat=0.01) as turn:
        turn.require()
        (key,) = objects.list(TURNS)
        while stat := objects.stat(key):
            objects.delete(key, stat.generation)
        assert create_record(objects, key, author())
        with pytest.raises(TurnLostError, match="run a: this process did not run"):
            turn.require()
        until = time.monotonic() + 20
        while renewing := [thread for thread in threading.enumerate() if thread.name == key]:
            assert time.monotonic() < until, "it renews the record of the other one"
            renewing[0].join(0.1)
    assert list(objects.list(TURNS)) == [key]
