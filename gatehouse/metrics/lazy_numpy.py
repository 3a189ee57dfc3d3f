"""NumPy, imported when a metric first computes: configuration names metrics also where NumPy is not installed."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
else:

    class _NumPy:
        def __getattr__(self, name: str) -> Any:
            import numpy

            return getattr(numpy, name)

    np = _NumPy()

__all__ = ["np"]
