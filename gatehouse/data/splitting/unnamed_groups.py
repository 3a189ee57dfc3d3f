"""Columns that look like the identity of something with several rows, such as a person, though the split names none.

The values of such a column have a few rows each, and these rows nearly always agree in another column too: the income
of a person, the label of a patient. Rows of one group in train and in test make a test ask what training has seen.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gatehouse.data.splitting.partition import PARTS, Parts
from gatehouse.data.splitting.stable_hash import Hashes, hash_column, is_missing
from gatehouse.data.splitting.training_set import TrainingSet

_FEWEST, _FEWEST_ROWS, _MOST_ROWS = 50, 2, 20
_ALONE = 0.25
"""Share of the values that may have one row: the other rows of a group may have been rejected."""
_MOSTLY = 0.99
"""Share of the groups that have few rows, and share of those that agree: a value may be wrong, or be a stand-in."""
_CHANCE = 1e-6
"""How likely rows that are no groups agree in a column: where it is no less, their agreement says nothing."""
_LOOKED_AT = 1 << 18
_FIRST, _WORTH_ALL = 300, 0.95
"""Groups that are compared first, and the share of them that must agree before all are; in most columns few do."""

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Groups:
    """The groups that a column seems to name.

    Attributes:
        column: The column.
        agree_in: Another one, in which the rows of each group agree.
        groups: Number of groups, of those that were looked at.
        most: Rows of the largest ones, without one in a hundred.
        divided: How many groups have rows in several parts.
        larger: Whether any group has more than `most` rows.
    """

    column: str
    agree_in: str
    groups: int
    most: int
    divided: int
    larger: bool = False

    def __str__(self) -> str:
        return (
            f"{self.column} may name something that has several rows, such as a person: its {self.groups:,} values "
            f"have {'mostly ' * self.larger}at most {self.most} rows each, which agree in {self.agree_in}, and "
            f"{self.divided:,} of them have rows in several parts"
        )


@dataclass
class _Candidate:
    """A column that may name groups.

    Attributes:
        column: The column.
        rows: Numbers of the rows looked at, those of a group side by side.
        starts: Where each group starts among them.
        divided: How many groups have rows in several parts.
        agree_in: Columns in which the groups agree, so far; of one with few values a second is waited for.
        found: Whether that is enough.
    """

    column: str
    rows: Numbers
    starts: Numbers
    divided: int
    agree_in: list[str] = field(default_factory=list)
    found: bool = False

    @property
    def sizes(self) -> Numbers:
        """Rows of each group."""
        return np.diff(np.append(self.starts, len(self.rows)))


def unnamed_groups(training_set: TrainingSet, parts: Parts, columns: Sequence[str]) -> Iterator[Groups]:
    """Look for columns that name groups of which some are in several parts.

    Of a large table a sample is looked at, which holds all rows of a group or none. Every column is read once as a
    candidate, and once as what the groups of all candidates may agree in.

    Args:
        training_set: Rows of a group may agree in its features and in its label.
        parts: Row numbers by part.
        columns: Those that may name groups.
    """
    candidates = [one for column in columns if (one := _candidate(training_set, parts, column))]
    for other in (*training_set.features, training_set.label):
        asked = [one for one in candidates if not one.found and one.column != other]
        if not asked:
            continue
        column = training_set.column(other).unify_dictionaries()
        likely = list(_likely(column, asked))
        if not likely:
            continue
        whole = column.combine_chunks()
        values, held = hash_column(whole), ~is_missing(whole)
        for one in likely:
            if not _agree(values, held, one):
                continue
            said, enough = _says(training_set, one, other, values, held)
            one.agree_in += [other] * said
            one.found = enough or len(one.agree_in) > 1
    for one in candidates:
        if one.found:
            most, largest = int(np.quantile(one.sizes, _MOSTLY, method="higher")), int(one.sizes.max())
            yield Groups(one.column, one.agree_in[-1], len(one.starts), most, one.divided, largest > most)


def may_name(training_set: TrainingSet) -> list[str]:
    """The columns of whole numbers, which features hold as floats, and of texts, without keys and label."""
    roles = {*training_set.entity_keys, training_set.label}
    return [name for name in training_set.schema.names if name not in roles and _is_discrete(training_set, name)]


def _is_discrete(training_set: TrainingSet, name: str) -> bool:
    kind = training_set.schema.field(name).type
    if pa.types.is_floating(kind):
        parts = (pc.cast(part, pa.float64()).to_numpy(zero_copy_only=False) for (part,) in training_set.batches([name]))
        return all(bool((np.floor(part) == part)[np.isfinite(part)].all()) for part in parts)
    return any(is_kind(kind) for is_kind in (pa.types.is_integer, pa.types.is_string, pa.types.is_dictionary))


def _candidate(training_set: TrainingSet, parts: Parts, column: str) -> _Candidate | None:
    """A column whose values have a few rows each, in several parts; None for another."""
    rows = np.concatenate([parts[name] for name in PARTS])
    part = np.repeat(np.arange(len(PARTS)), [len(parts[name]) for name in PARTS])
    hashes, missing = training_set.hashes([column], 0)
    looked = _sample(hashes[rows], missing[rows])
    order = looked[np.argsort(hashes[rows[looked]], kind="stable")]
    starts = _starts(hashes[rows[order]])
    one = _Candidate(column, rows[order], starts, 0)
    if not _are_groups(one.sizes):
        return None
    one.divided = int((np.maximum.reduceat(part[order], starts) != np.minimum.reduceat(part[order], starts)).sum())
    return one if one.divided else None


def _sample(hashes: Hashes, missing: npt.NDArray[np.bool_]) -> Numbers:
    """Places of the rows with a value, thinned out by the hash of the value: all rows of a group, or none."""
    thinned = max(1, -(-len(hashes) // _LOOKED_AT))
    return np.flatnonzero(~missing & (hashes % np.uint64(thinned) == 0))


def _starts(ordered: Hashes) -> Numbers:
    """Where each group of equal values starts."""
    return np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])) if len(ordered) else np.empty(0, np.int64)


def _are_groups(sizes: Numbers) -> bool:
    enough = len(sizes) >= _FEWEST and float(np.quantile(sizes, _MOSTLY)) <= _MOST_ROWS
    return enough and float(np.mean(sizes < _FEWEST_ROWS)) <= _ALONE


def _likely(column: pa.ChunkedArray, asked: Sequence[_Candidate]) -> Iterator[_Candidate]:
    """The candidates of whose first groups most have one value. Groups are in the order of a hash: it is a sample."""
    ends = [one.starts[_FIRST] if len(one.starts) > _FIRST else len(one.rows) for one in asked]
    rows = np.concatenate([one.rows[:end] for one, end in zip(asked, ends, strict=True)])
    first = column.take(rows).combine_chunks()
    first = first.dictionary_decode() if pa.types.is_dictionary(first.type) else first
    values, held = hash_column(first), ~is_missing(first)
    for one, end, last in zip(asked, ends, np.cumsum(ends), strict=True):
        looked = slice(last - end, last)
        if _agreeing(values[looked], held[looked], one.starts[:_FIRST])[0] >= _WORTH_ALL:
            yield one


def _agree(values: Hashes, held: npt.NDArray[np.bool_], one: _Candidate) -> bool:
    """Whether nearly all groups have one value, and those of any other groups would not.

    Args:
        values: Hashes of a column, shape (rows of the training set,).
        held: Whether each row has a value.
        one: The groups.
    """
    found, there = values[one.rows], held[one.rows]
    share, groups = _agreeing(found, there, one.starts)
    if share < _MOSTLY:
        return False
    shares = np.unique(found[there], return_counts=True)[1] / there.sum()
    return _by_chance(share, float((shares**2).sum()), groups) < _CHANCE


def _agreeing(values: Hashes, held: npt.NDArray[np.bool_], starts: Numbers) -> tuple[float, int]:
    """The share of groups whose rows have one value, among those with two values or more, and the number of these."""
    least = np.minimum.reduceat(np.where(held, values, ~np.uint64(0)), starts)
    largest = np.maximum.reduceat(np.where(held, values, np.uint64(0)), starts)
    several = np.add.reduceat(held.astype(np.int64), starts) > 1
    return (float(np.mean((least == largest)[several])) if several.any() else 0.0), int(several.sum())


def _by_chance(share: float, likely: float, groups: int) -> float:
    """A bound on how likely at least such a share of groups agrees, where each does with a chance (Chernoff 1952)."""
    if share <= likely:
        return 1.0
    differ = (1 - share) * np.log((1 - share) / (1 - likely)) if share < 1 else 0.0
    return float(np.exp(-groups * (share * np.log(share / likely) + differ)))


def _says(
    training_set: TrainingSet, one: _Candidate, other: str, values: Hashes, held: npt.NDArray[np.bool_]
) -> tuple[bool, bool]:
    """Whether agreement in a column says that groups are named, and whether it says so alone.

    It does not if the column is computed from the number, as a tax from a price. A feature with few values, such as the
    last digit, may be, in a way that is not seen; the label says it alone.
    """
    place = np.maximum.reduceat(np.where(held[one.rows], np.arange(len(one.rows)), -1), one.starts)
    rows = one.rows[place[place >= 0]]
    distinct = len(np.unique(values[rows]))
    few = 2 * distinct <= len(rows)
    if _is_number(training_set, one.column):
        rows = rows[np.argsort(training_set.numbers(one.column)[rows], kind="stable")]
        in_order = values[rows]
        if few and 1 + int((in_order[1:] != in_order[:-1]).sum()) <= 2 * distinct:
            return False, False
        if not few and _is_number(training_set, other):
            rising = float(np.mean(np.diff(training_set.numbers(other)[rows]) >= 0))
            if not 1 - _MOSTLY < rising < _MOSTLY:
                return False, False
    return True, not few or other == training_set.label


def _is_number(training_set: TrainingSet, name: str) -> bool:
    kind = training_set.schema.field(name).type
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))
