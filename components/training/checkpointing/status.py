"""Numbers in shared memory by which a rank and its checkpoint writer tell each other how far they are."""

import mmap
import struct

HEAD = 4096
"""Bytes before the tensors."""
_NUMBERS = struct.Struct("@q")
_WRITTEN, _FINISHED = 0, 8


class Status:
    """Sequence numbers, set by the writer alone: an aligned number of eight bytes is read whole or not at all."""

    def __init__(self, memory: mmap.mmap | memoryview) -> None:
        self._memory = memory

    @property
    def written(self) -> int:
        """The last checkpoint of which all that this rank writes is on disk."""
        return self._get(_WRITTEN)

    @written.setter
    def written(self, sequence: int) -> None:
        self._set(_WRITTEN, sequence)

    @property
    def finished(self) -> int:
        """The last checkpoint that the writer is done with, also where it failed: the buffer is free."""
        return self._get(_FINISHED)

    @finished.setter
    def finished(self, sequence: int) -> None:
        self._set(_FINISHED, sequence)

    def _get(self, at: int) -> int:
        return int(_NUMBERS.unpack_from(self._memory, at)[0])

    def _set(self, at: int, sequence: int) -> None:
        _NUMBERS.pack_into(self._memory, at, sequence)
