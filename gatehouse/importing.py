"""Imports of libraries without what they only try: many import large packages for a part that nothing here uses."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without(*packages: str) -> Iterator[None]:
    """While open, these packages seem not to be installed; those that are imported already stay as they are."""
    hidden = [name for name in packages if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None: Python's own way to say there is none.
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]
