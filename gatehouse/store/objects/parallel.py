"""Parallel requests: as many at once as a store supports."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from gatehouse.store.objects.base import ObjectStore

Item = TypeVar("Item")
Result = TypeVar("Result")


def side_by_side(objects: ObjectStore, work: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """Do `work` on each item and return the results in the order of the items; raises the first failure.

    Args:
        objects: The store that the work uses. For a local store, items are processed one after another.
        work: One or more requests to the store. It runs on threads.
        items: The items.
    """
    wanted = list(items)
    if objects.parallel == 1 or len(wanted) < 2:
        return [work(item) for item in wanted]
    with ThreadPoolExecutor(objects.parallel) as pool:
        return list(pool.map(work, wanted))
