"""What was read last: fresh where the store answers, kept where it does not, and never older than a change."""

import threading

import pytest

from gatehouse.errors import ConfigurationError, GatehouseError, StoreError
from gatehouse.server.known import LastKnown


@pytest.fixture(autouse=True)
def never_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gatehouse.server.known._FRESH", 0.0)


def test_it_is_read_again_and_kept_where_that_fails() -> None:
    answers: list[int | GatehouseError] = [1, 2, StoreError("away"), ConfigurationError("gone"), 3]

    def read(key: str) -> int:
        answer = answers.pop(0)
        if isinstance(answer, GatehouseError):
            raise answer
        return answer

    known = LastKnown(read)
    assert [known.get("a").value for _ in range(3)] == [1, 2, 2]
    with pytest.raises(ConfigurationError, match="gone"):
        known.get("a")
    assert known.get("a").value == 3
    known.close()


def test_nobody_waits_for_a_store_that_hangs() -> None:
    hangs, go = threading.Event(), threading.Event()
    values = iter([1, 2])

    def read(key: str) -> int:
        value = next(values)
        if hangs.is_set():
            go.wait(60)
        return value

    known = LastKnown(read)
    assert known.get("a").value == 1
    hangs.set()
    assert known.get("a").value == 1
    assert known.get("a").age > 0.0
    go.set()
    known._readings["a"].future.result(60)
    assert known._known["a"].value == 2
    known.close()


def test_what_was_read_before_a_change_is_not_kept_after_it() -> None:
    reads, go = threading.Event(), threading.Event()
    values = iter(["old", "new"])

    def read(key: str) -> str:
        value = next(values)
        if value == "old":
            reads.set()
            go.wait(60)
        return value

    known = LastKnown(read)
    early = known._reading("a")
    reads.wait(60)
    known.forget()
    assert known.get("a").value == "new"
    go.set()
    assert early.future.result(60).value == "old"
    assert known._known["a"].value == "new"
    known.close()
