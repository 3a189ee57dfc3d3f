"""Numbers in shared memory by which a rank and its checkpoint writer tell each other how far they are."""

import mmap

HEAD = 4096
"""Bytes before the tensors."""
_WRITTEN, _FINISHED = 0, 1


class Status:
    """Two sequence numbers, set by the writer alone.

    Each is an aligned number of eight bytes in a typed view, so that one instruction stores or reads it whole. `struct`
    would set it to zero first.
    """

    def __init__(self, memory: mmap.mmap | memoryview) -> None:
        self._numbers = memoryview(memory)[:16].cast("q")

    @property
    def written(self) -> int:
        """The last checkpoint of which all that this rank writes is on disk."""
        return self._numbers[_WRITTEN]

    @written.setter
    def written(self, sequence: int) -> None:
        self._numbers[_WRITTEN] = sequence

    @property
    def finished(self) -> int:
        """The last checkpoint that the writer is done with, also where it failed: the buffer is free."""
        return self._numbers[_FINISHED]

    @finished.setter
    def finished(self, sequence: int) -> None:
        self._numbers[_FINISHED] = sequence
