"""Results come in the order of the items, with their errors, whatever the number of threads."""

import threading
from collections.abc import Iterator

import pytest

from gatehouse.runtime import in_turn as module
from gatehouse.runtime.in_turn import in_turn


@pytest.fixture(params=[1, 4], autouse=True)
def threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(module, "processors", lambda: request.param)
    return int(request.param)


def until(stop: int, taken: list[int] | None = None) -> Iterator[int]:
    for number in range(stop):
        if taken is not None:
            taken.append(number)
        yield number
    raise OSError("the source is gone")


def test_results_come_in_the_order_of_the_items_though_later_work_ends_first(threads: int) -> None:
    second = threading.Event()

    def square(number: int) -> int:
        if number == 0 and threads > 1:
            assert second.wait(10)
        if number == 1:
            second.set()
        return number**2

    assert list(in_turn(square, range(20))) == [number**2 for number in range(20)]
    assert list(in_turn(square, [])) == []


def test_the_first_error_by_the_order_of_the_items_is_raised_after_the_results_before_it() -> None:
    results = in_turn(lambda number: 1 // (number - 3), until(5))
    assert [next(results) for _ in range(3)] == [-1, -1, -1]
    with pytest.raises(ZeroDivisionError):
        next(results)
    results = in_turn(lambda number: number, until(5))
    assert [next(results) for _ in range(5)] == [*range(5)]
    with pytest.raises(OSError, match="gone"):
        next(results)


def test_few_items_are_ahead_and_a_reader_that_stops_ends_the_threads(threads: int) -> None:
    taken: list[int] = []
    results = in_turn(lambda number: number, until(1000, taken))
    assert next(results) == 0
    assert len(taken) <= threads + 1
    results.close()  # type: ignore[attr-defined]  # It is a generator.
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("in-turn")]
