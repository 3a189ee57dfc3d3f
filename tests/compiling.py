"""Compiles pipelines in a thread of its own.

At each of a hundred settings of tasks KFP looks up every frame of the stack, and the stack of a test is deep.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any


def with_a_short_stack(call: Callable[..., Any], *arguments: Any) -> Any:
    """What the call returns, or raises."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(call, *arguments).result()
