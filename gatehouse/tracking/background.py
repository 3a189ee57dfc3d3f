"""Work on a thread beside that of its caller."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context


@contextmanager
def in_background(work: Callable[[threading.Event], None], name: str) -> Iterator[None]:
    """In this context a thread runs, with the caller's context variables; it has ended when this context ends.

    Args:
        work: What it does, until the event is set.
        name: Of the thread.
    """
    ended = threading.Event()
    thread = threading.Thread(target=copy_context().run, args=(work, ended), name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
