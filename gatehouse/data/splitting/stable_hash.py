"""A hash of column values that is the same on every machine and in every version: 64 bits a row, computed on arrays.

A value is first brought to 64-bit words that do not depend on how Arrow holds it: an integer of any width is its value,
a time is microseconds in UTC, a number is a double without -0, a text is its UTF-8 bytes. A dictionary hashes as its
values. The words are absorbed one by one with the finaliser of SplitMix64 (Steele, Lea, Flood 2014):

    state = mix(seed); for every column: state = mix(state ^ digest(column))
    digest = mix(kind); for every word: digest = mix(digest ^ word)

A text has its length in bytes as last word. No secret is kept: who chooses keys can choose collisions.
"""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Hashes = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]

_KINDS = {"null": 0, "integer": 1, "time": 2, "number": 3, "text": 4, "truth": 5}
_TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view, pa.types.is_decimal)
_BYTES = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary)
_FULL = (1 << 64) - 1
_STEP, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def mix(words: Hashes) -> Hashes:
    """SplitMix64's step and finaliser of every word, of any shape: a bijection in which each bit depends on all."""
    mixed = words + np.uint64(_STEP)
    mixed ^= mixed >> np.uint64(30)
    mixed *= np.uint64(_FIRST)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(_SECOND)
    mixed ^= mixed >> np.uint64(31)
    return mixed


def seed_of(seed: int, purpose: str) -> int:
    """A 64-bit start for one purpose, so that two draws with one seed do not agree."""
    return int.from_bytes(hashlib.sha256(f"gatehouse split\0{seed}\0{purpose}".encode()).digest()[:8], "little")


def row_hashes(batches: Iterable[Sequence[pa.Array]], start: int, rows: int) -> tuple[Hashes, Flags]:
    """The hash of each of `rows` rows, and whether any of its columns is null or NaN; both of shape (rows,)."""
    hashes, nulls, end = np.empty(rows, np.uint64), np.empty(rows, np.bool_), 0
    for columns in batches:
        state = np.full(len(columns[0]), start, np.uint64)
        state = mix(state)
        missing = np.zeros(len(state), np.bool_)
        for column in columns:
            state ^= hash_column(column)
            state = mix(state)
            missing |= is_missing(column)
        begin, end = end, end + len(state)
        hashes[begin:end], nulls[begin:end] = state, missing
    return hashes, nulls


def is_missing(column: pa.Array) -> Flags:
    """Whether each value is null or NaN, shape (rows,)."""
    return np.asarray(pc.is_null(column, nan_is_null=True).to_numpy(zero_copy_only=False), np.bool_)


def hash_column(column: pa.Array) -> Hashes:
    """The digest of every value, shape (rows,); null and NaN have one of their own."""
    kind = column.type
    digests: Hashes
    if pa.types.is_dictionary(kind):
        values = hash_column(column.dictionary) if len(column.dictionary) else np.zeros(1, np.uint64)
        digests = values[pc.fill_null(column.indices, 0).to_numpy()]
    elif any(is_kind(kind) for is_kind in _TEXTS):
        digests = _hash_bytes(pc.cast(column, pa.large_string()))
    elif any(is_kind(kind) for is_kind in _BYTES):
        digests = _hash_bytes(pc.cast(column, pa.large_binary()))
    elif pa.types.is_null(kind):
        digests = np.zeros(len(column), np.uint64)
    else:
        name, words = _words(column)
        digests = mix(words ^ _start(name))
    missing = is_missing(column)
    if missing.any():
        digests = np.where(missing, _start("null"), digests)
    return digests


def _start(kind: str) -> np.uint64:
    return np.uint64(mix(np.array([_KINDS[kind]], np.uint64))[0])


def _words(column: pa.Array) -> tuple[str, Hashes]:
    """The kind of a column whose values fit a word, and the words; nulls become 0."""
    kind = column.type
    if pa.types.is_boolean(kind):
        return "truth", pc.fill_null(pc.cast(column, pa.uint8()), 0).to_numpy().astype(np.uint64)
    if pa.types.is_integer(kind):
        values = pc.fill_null(column, 0).to_numpy()
        return "integer", values.astype(np.int64).view(np.uint64) if values.dtype.kind == "i" else values.astype("u8")
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        plain = pc.cast(column, pa.timestamp("us", getattr(kind, "tz", None)), safe=False)
        return "time", pc.fill_null(pc.cast(plain, pa.int64()), 0).to_numpy().view(np.uint64)
    if pa.types.is_floating(kind):
        numbers = pc.fill_null(pc.cast(column, pa.float64()), 0.0).to_numpy() + 0.0
        return "number", numbers.view(np.uint64)
    raise TypeError(f"expected numbers, times, texts, bytes or truth values, found {kind}")


def _hash_bytes(column: pa.Array) -> Hashes:
    """Texts and bytes, 8 bytes at a time: the n-th words of all values that have one are absorbed together."""
    count = len(column)
    digests = np.full(count, _start("text"), np.uint64)
    _, offsets_buffer, data = column.buffers()
    if count == 0:
        return digests
    offsets = np.frombuffer(offsets_buffer, np.int64)[column.offset : column.offset + count + 1]
    lengths = np.diff(offsets)
    first, last = int(offsets[0]), int(offsets[-1])
    padded = np.zeros(last - first + 8, np.uint8)
    if last > first:
        padded[:-8] = np.frombuffer(data, np.uint8)[first:last]
    # One word from every byte on, overlapping: an unaligned load of 8 bytes, little-endian on every machine.
    words: npt.NDArray[Any] = np.ndarray((len(padded) - 7,), "<u8", padded, strides=(1,))
    begins = offsets[:-1] - first
    active, longest, place = np.arange(count), int(lengths.max()), 0
    while place < longest:
        if place:
            active = active[lengths[active] > place]
        remaining = np.minimum(lengths[active] - place, 8).astype(np.uint64)
        loaded = words[begins[active] + place].astype(np.uint64)
        loaded &= np.uint64(_FULL) >> (np.uint64(64) - np.uint64(8) * np.maximum(remaining, np.uint64(1)))
        # An empty value has no word; only the first round meets one.
        kept = remaining > 0
        if not kept.all():
            active, loaded = active[kept], loaded[kept]
        digests[active] = mix(digests[active] ^ loaded)
        place += 8
    return mix(digests ^ lengths.astype(np.uint64))
