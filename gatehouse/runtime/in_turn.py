"""Work on a stream of items by several threads, whose results come in the order of the items."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from gatehouse.runtime.limits import processors

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_MOST_THREADS = 4


def in_turn(work: Callable[[_Item], _Result], items: Iterable[_Item]) -> Iterator[_Result]:
    """The results of `work` on each item, in order; as many items are ahead of the reader as there are threads.

    An error, of `work` or of the items themselves, comes in its turn too, so the number of threads decides nothing.
    """
    threads, stream = min(_MOST_THREADS, processors()), iter(items)
    waiting, more = deque[Future[_Result]](), True
    pool = ThreadPoolExecutor(threads, thread_name_prefix="in-turn")
    try:
        while more or waiting:
            try:
                if more:
                    waiting.append(pool.submit(work, next(stream)))
            except StopIteration:
                more = False
            except Exception as error:
                more = False
                waiting.append(Future())
                waiting[-1].set_exception(error)
            if waiting and (not more or len(waiting) > threads):
                yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
