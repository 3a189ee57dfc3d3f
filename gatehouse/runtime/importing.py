"""Imports libraries without their optional dependencies, which can be large and are not used here."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without(*packages: str) -> Iterator[None]:
    """Inside this context, these packages seem not to be installed; packages that are already imported stay."""
    hidden = [name for name in packages if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None: Python's own way to say there is none.
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]
