"""An object store in memory, of which a test sees every operation, on a clock that a test sets."""

import itertools
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from gatehouse.errors import MissingArtifactError
from gatehouse.store.canonical import sha256_bytes
from gatehouse.store.objects.base import Stat


@dataclass
class Memory:
    """What the store holds; one for all clients of it. `clock` is its own time."""

    conditional_delete: bool = True
    clock: float = 1000.0
    objects: dict[str, tuple[bytes, Stat]] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=itertools.count)

    @cached_property
    def folder(self) -> "tempfile.TemporaryDirectory[str]":
        return tempfile.TemporaryDirectory(prefix="memory-objects-", ignore_cleanup_errors=True)


class MemoryObjects:
    """One client of a `Memory`. `step` is called before every operation."""

    parallel = 1

    def __init__(self, memory: Memory, step: Callable[[str], None] = lambda operation: None) -> None:
        self.memory = memory
        self.step = step
        self.address = "memory"

    def _stat(self, data: bytes) -> Stat:
        self.memory.clock += 0.001
        return Stat(len(data), str(next(self.memory.numbers)), self.memory.clock)

    def put_bytes(self, key: str, data: bytes) -> bool:
        self.step(f"put {key}")
        if key in self.memory.objects:
            return False
        self.memory.objects[key] = (data, self._stat(data))
        return True

    def put_file(self, key: str, path: Path) -> bool:
        return self.put_bytes(key, path.read_bytes())

    def get_bytes(self, key: str) -> bytes:
        self.step(f"get {key}")
        if key not in self.memory.objects:
            raise MissingArtifactError(f"{key} is not in the store.")
        return self.memory.objects[key][0]

    def local_path(self, key: str) -> Path:
        data = self.get_bytes(key)
        path = Path(self.memory.folder.name) / key.replace("/", "_")
        path.write_bytes(data)
        return path

    def sha256(self, key: str) -> str:
        return sha256_bytes(self.get_bytes(key))

    def forget(self, key: str) -> None:
        pass

    def stat(self, key: str) -> Stat | None:
        self.step(f"stat {key}")
        entry = self.memory.objects.get(key)
        return entry[1] if entry else None

    def stats(self, keys: Iterable[str]) -> Mapping[str, Stat | None]:
        return {key: self.stat(key) for key in keys}

    def renew(self, key: str) -> bool:
        self.step(f"renew {key}")
        if key not in self.memory.objects:
            return False
        data, _ = self.memory.objects[key]
        self.memory.objects[key] = (data, self._stat(data))
        return True

    def delete(self, key: str, generation: str) -> bool:
        """By generation at once, as Google's stores do; or a look, then a delete of whatever is there, as on S3."""
        stat = self.stat(key)
        if stat is None or stat.generation != generation:
            return False
        if not self.memory.conditional_delete:
            self.step(f"delete {key}")
        return self.memory.objects.pop(key, None) is not None

    def list(self, prefix: str) -> Iterator[str]:
        self.step(f"list {prefix}")
        yield from sorted(key for key in self.memory.objects if key.startswith(f"{prefix}/"))

    def folders(self, prefix: str = "") -> Iterator[str]:
        self.step(f"folders {prefix}")
        depth = len(prefix.split("/")) if prefix else 0
        inside = (key.split("/") for key in self.memory.objects if not prefix or key.startswith(f"{prefix}/"))
        yield from sorted({parts[depth] for parts in inside if len(parts) > depth + 1})
