"""Columns that look like the identity of something with several rows, such as a person, though the split names none.

The values of such a column have a few rows each, and these rows always agree in another column too: the income of a
person, the label of a patient. Rows of one group in train and in test make a test ask what training has seen.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gatehouse.components.splitting.partition import PARTS, Parts
from gatehouse.components.splitting.stable_hash import Hashes, hash_column
from gatehouse.components.splitting.training_set import TrainingSet

_FEWEST, _FEWEST_ROWS, _MOST_ROWS = 50, 2, 20
_ALONE = 0.05
"""Share of the values that may have one row: of a group of two, the other row may have been rejected."""
_CHANCE = 1e-6
"""How likely rows that are no groups agree in a column: where it is no less, their agreement says nothing."""
_LOOKED_AT = 1 << 18


@dataclass(frozen=True)
class Groups:
    """The groups that a column seems to name.

    Attributes:
        column: The column.
        agree_in: Another one, in which the rows of each group agree.
        groups: Number of groups, of those that were looked at.
        most: Rows of the largest one.
        divided: How many groups have rows in several parts.
    """

    column: str
    agree_in: str
    groups: int
    most: int
    divided: int

    def __str__(self) -> str:
        return (
            f"{self.column} may name something that has several rows, such as a person: its {self.groups:,} values "
            f"have at most {self.most} rows each, which agree in {self.agree_in}, and {self.divided:,} of them "
            "have rows in several parts"
        )


def unnamed_groups(training_set: TrainingSet, parts: Parts, columns: Sequence[str]) -> Iterator[Groups]:
    """Look for columns that name groups of which some are in several parts.

    Of a large table a sample is looked at, which holds all rows of a group or none.

    Args:
        training_set: Rows of a group may agree in its features and in its label.
        parts: Row numbers by part.
        columns: Those that may name groups.
    """
    rows = np.concatenate([parts[name] for name in PARTS])
    part = np.repeat(np.arange(len(PARTS)), [len(parts[name]) for name in PARTS])
    for column in columns:
        hashes, missing = training_set.hashes([column], 0)
        looked = _sample(hashes[rows], missing[rows])
        order = looked[np.argsort(hashes[rows[looked]], kind="stable")]
        starts, sizes = _groups(hashes[rows[order]])
        if not _are_groups(sizes) or not (divided := int(_differ(part[order], starts).sum())):
            continue
        for other in (*training_set.features, training_set.label):
            if other != column and _agree(_values(training_set, other, rows[order]), starts):
                yield Groups(column, other, len(sizes), int(sizes.max()), divided)
                break


def may_name(training_set: TrainingSet) -> list[str]:
    """The columns of whole numbers, which features hold as floats, and of texts, without keys and label."""
    roles = {*training_set.entity_keys, training_set.label}
    return [name for name in training_set.schema.names if name not in roles and _is_discrete(training_set, name)]


def _is_discrete(training_set: TrainingSet, name: str) -> bool:
    kind = training_set.schema.field(name).type
    if pa.types.is_floating(kind):
        values = training_set.numbers(name)
        return bool((np.floor(values) == values)[np.isfinite(values)].all())
    return any(is_kind(kind) for is_kind in (pa.types.is_integer, pa.types.is_string, pa.types.is_dictionary))


def _values(training_set: TrainingSet, name: str, rows: npt.NDArray[np.int64]) -> Hashes:
    """The hashes of a column's values in some rows."""
    return hash_column(training_set.column(name).unify_dictionaries().take(rows).combine_chunks())


def _sample(hashes: Hashes, missing: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Places of the rows with a value, thinned out by the hash of the value: all rows of a group, or none."""
    thinned = max(1, -(-len(hashes) // _LOOKED_AT))
    return np.flatnonzero(~missing & (hashes % np.uint64(thinned) == 0))


def _groups(ordered: Hashes) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Where each group of equal values starts, and how many rows it has."""
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])) if len(ordered) else np.empty(0, np.int64)
    return starts, np.diff(np.append(starts, len(ordered)))


def _are_groups(sizes: npt.NDArray[np.int64]) -> bool:
    enough = len(sizes) >= _FEWEST and int(sizes.max()) <= _MOST_ROWS
    return enough and float(np.mean(sizes < _FEWEST_ROWS)) <= _ALONE


def _differ(values: npt.NDArray[Any], starts: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Whether the rows of each group have different values, shape (groups,)."""
    found: npt.NDArray[np.bool_] = np.maximum.reduceat(values, starts) != np.minimum.reduceat(values, starts)
    return found


def _agree(values: Hashes, starts: npt.NDArray[np.int64]) -> bool:
    """Whether the rows of every group have one value, and those of any other groups would not."""
    if _differ(values, starts).any():
        return False
    shares = np.unique(values, return_counts=True)[1] / len(values)
    pairs = int((np.diff(np.append(starts, len(values))) > 1).sum())
    return bool(float((shares**2).sum()) ** pairs < _CHANCE)
