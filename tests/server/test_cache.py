"""What was read last: fresh where the store answers, kept where it does not, and never older than a change."""

import threading

import pytest

from gatehouse.errors import ConfigurationError, GatehouseError, StoreError
from gatehouse.server.cache import ReadCache


@pytest.fixture(autouse=True)
def never_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gatehouse.server.cache._FRESH", 0.0)


def test_it_is_read_again_and_kept_where_that_fails() -> None:
    answers: list[int | GatehouseError] = [1, 2, StoreError("away"), ConfigurationError("gone"), 3]

    def read(key: str) -> int:
        answer = answers.pop(0)
        if isinstance(answer, GatehouseError):
            raise answer
        return answer

    cache = ReadCache(read)
    assert [cache.get("a").value for _ in range(3)] == [1, 2, 2]
    with pytest.raises(ConfigurationError, match="gone"):
        cache.get("a")
    assert cache.get("a").value == 3
    cache.close()


def test_nobody_waits_for_a_store_that_hangs() -> None:
    hangs, go = threading.Event(), threading.Event()
    values = iter([1, 2])

    def read(key: str) -> int:
        value = next(values)
        if hangs.is_set():
            go.wait(60)
        return value

    cache = ReadCache(read)
    assert cache.get("a").value == 1
    hangs.set()
    assert cache.get("a").value == 1
    assert cache.get("a").age > 0.0
    go.set()
    cache._readings["a"].future.result(60)
    assert cache._values["a"].value == 2
    cache.close()


def test_what_was_read_before_a_change_is_not_kept_after_it() -> None:
    reads, go = threading.Event(), threading.Event()
    values = iter(["old", "new"])

    def read(key: str) -> str:
        value = next(values)
        if value == "old":
            reads.set()
            go.wait(60)
        return value

    cache = ReadCache(read)
    early = cache._reading("a")
    reads.wait(60)
    cache.forget()
    assert cache.get("a").value == "new"
    go.set()
    assert early.future.result(60).value == "old"
    assert cache._values["a"].value == "new"
    cache.close()
