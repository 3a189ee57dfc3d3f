"""Gives every row its part, by the strategy that the specification names.

By hash, a row's part follows from the hash of its own key alone, so rows of equal hash stay together. Only strata are
cut by rank, so that their fractions hold to within one row.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gatehouse.data.splitting.spec import (
    EntitySplit,
    Fractions,
    GroupSplit,
    KFoldSplit,
    RandomSplit,
    RollingOriginSplit,
    SplitSpec,
    StratifiedSplit,
    TimeSplit,
)
from gatehouse.data.splitting.stable_hash import Flags, Hashes, seed_of
from gatehouse.data.splitting.training_set import Times, TrainingSet
from gatehouse.errors import ConfigurationError
from gatehouse.runtime.plural import counted

PARTS = ("train", "validation", "test")
PAIRS = (("train", "validation"), ("train", "test"), ("validation", "test"))
TRAIN, VALIDATION, TEST, NONE = 0, 1, 2, -1
Rows = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int8]
Parts = dict[str, Rows]
_SPACE = 1 << 64
_LEAVE = "null keys"


@dataclass(frozen=True)
class Partition:
    """Ascending row numbers by part, and how many rows are in none of them, by reason.

    A fold's `train` and `validation` are made when asked, for they are large together. With any problem there is no
    split.
    """

    parts: Parts
    left_out: dict[str, int] = field(default_factory=dict)
    folds: int = 0
    fold: Callable[[int], Parts] = lambda number: {}
    problems: tuple[str, ...] = ()

    def every_fold(self) -> Iterator[tuple[int, Parts]]:
        """Number and parts of each fold; row numbers of shape (rows of the part,)."""
        for number in range(self.folds):
            yield number, self.fold(number)


def divide(spec: SplitSpec, training_set: TrainingSet) -> Partition:
    """Divide the rows. Raises ConfigurationError if the training set has not the columns that the strategy reads."""
    match spec:
        case TimeSplit() | RollingOriginSplit():
            return _by_time(spec, training_set)
        case KFoldSplit():
            return _in_folds(spec, training_set)
        case RandomSplit() | EntitySplit() | GroupSplit() | StratifiedSplit():
            return _by_fractions(spec, training_set)


def rows_of(codes: Codes) -> Parts:
    """Rows of each part from the part of each row: 0 train, 1 validation, 2 test, -1 none; shape (rows,)."""
    return {name: np.flatnonzero(codes == code).astype(np.int64) for code, name in enumerate(PARTS)}


def unit_of(spec: SplitSpec, training_set: TrainingSet) -> tuple[str, ...]:
    """The columns whose values together stay on one side: a row's key, an entity, a group; empty for other strategies.

    A row without entity keys and decision time is its own key: then there are no columns, which `hashes` takes for all.

    Raises ConfigurationError if the entity is made of columns that are no entity keys.
    """
    timed = training_set.has(training_set.decision_time)
    row_key = (*training_set.entity_keys, *((training_set.decision_time,) if timed else ()))
    match spec:
        case RandomSplit() | StratifiedSplit():
            return spec.keys or row_key
        case EntitySplit():
            return _entity(spec.keys, training_set)
        case GroupSplit():
            return spec.columns
        case KFoldSplit(unit="entity"):
            return _entity(spec.columns, training_set)
        case KFoldSplit(unit="stratified"):
            return row_key
        case KFoldSplit():
            return spec.columns or row_key
    return ()


def _entity(keys: tuple[str, ...], training_set: TrainingSet) -> tuple[str, ...]:
    unknown = [name for name in keys if name not in training_set.entity_keys]
    if unknown or not training_set.entity_keys:
        raise ConfigurationError(
            f"split: expected an entity of the entity keys {', '.join(training_set.entity_keys) or '(none)'}, found "
            f"{', '.join(unknown) or 'none'}. To split by other columns, use the strategy `group`."
        )
    return keys or training_set.entity_keys


def _by_time(spec: TimeSplit | RollingOriginSplit, training_set: TrainingSet) -> Partition:
    decision, label_time, problems = _times(training_set)
    last = spec if isinstance(spec, TimeSplit) else spec.at(spec.origins - 1)
    parts = divide_by_time(decision, label_time, last)
    left_out = {"gap": training_set.rows - sum(len(rows) for rows in parts.values())}
    partition = Partition(parts, left_out, problems=problems)
    if isinstance(spec, RollingOriginSplit):

        def fold(number: int) -> Parts:
            fold_parts = divide_by_time(decision, label_time, spec.at(number))
            return {name: fold_parts[name] for name in ("train", "validation")}

        partition = replace(partition, folds=spec.origins, fold=fold)
    return partition


def _times(training_set: TrainingSet) -> tuple[Times, Times, tuple[str, ...]]:
    """The times of decisions and labels, and a problem for each column that lacks some."""
    names = (training_set.decision_time, training_set.label_time)
    training_set.require(names)
    decision, label_time = (training_set.times(name) for name in names)
    missing = {name: int(np.isnat(times).sum()) for name, times in zip(names, (decision, label_time), strict=True)}
    problems = (
        f"{counted(count, 'row')} without {name} cannot be divided by time. Correct the entity rows"
        for name, count in missing.items()
        if count
    )
    return decision, label_time, tuple(problems)


def divide_by_time(decision: Times, label_time: Times, spec: TimeSplit) -> Parts:
    """Row numbers of each part, ascending; a row in a gap is in none.

    Both times are datetime64[us] in UTC, shape (rows,); `label_time` is when the label was known.
    """
    timed = decision[~np.isnat(decision)]
    newest = timed.max() if len(timed) else np.datetime64("NaT", "us")
    bounds = [
        None if bound is None else newest - ticks(bound) if isinstance(bound, timedelta) else moment(bound)
        for bound in (spec.train_from, spec.train_until, spec.validation_until, spec.test_until)
    ]
    parts: Parts = {}
    for name, start, end in zip(PARTS, bounds, bounds[1:], strict=False):
        chosen = np.ones(len(decision), dtype=bool)
        if start is not None:
            chosen &= decision >= start
        if end is not None:
            chosen &= decision < end
            if name != PARTS[-1]:
                chosen &= in_time(decision, label_time, end, spec.gap)
        parts[name] = np.flatnonzero(chosen).astype(np.int64)
    return parts


def in_time(decision: Times, label_time: Times, end: np.datetime64, gap: timedelta) -> Flags:
    """Which rows were decided at least `gap` before `end`, with a label that was known by then; shape (rows,)."""
    chosen: Flags = (decision <= end - ticks(gap)) & (label_time <= end)
    return chosen


def moment(value: datetime) -> np.datetime64:
    """A moment in UTC as datetime64[us]."""
    return np.datetime64(value.replace(tzinfo=None), "us")


def ticks(value: timedelta) -> np.timedelta64:
    """A duration in whole microseconds; its seconds as a float would lose some."""
    return np.timedelta64(value // timedelta(microseconds=1), "us")


def _by_fractions(
    spec: RandomSplit | EntitySplit | GroupSplit | StratifiedSplit, training_set: TrainingSet
) -> Partition:
    unit = unit_of(spec, training_set)
    hashes, null = training_set.hashes(unit, seed_of(spec.seed, "part"))
    if isinstance(spec, StratifiedSplit):
        strata = _strata(spec.strata, training_set)
        codes = np.full(training_set.rows, NONE, np.int8)
        codes[~null] = by_rank(hashes[~null], strata[~null], spec.fractions)
    else:
        codes = by_threshold(hashes, spec.fractions)
        codes[null] = NONE
    problems = _null_problems(spec.null_keys, training_set, unit, null)
    return Partition(rows_of(codes), _left_out({_LEAVE: null}), problems=problems)


def _strata(columns: tuple[str, ...], training_set: TrainingSet) -> Hashes:
    """Hash of each row's stratum; a missing value is a stratum of its own."""
    if not columns and not training_set.task.has_classes:
        raise ConfigurationError(
            f"split.strata: expected columns, as the label of the task {training_set.task.name} has too many values "
            "for strata; found none."
        )
    return training_set.hashes(columns or (training_set.label,), seed_of(0, "stratum"))[0]


def _null_problems(null_keys: str, training_set: TrainingSet, unit: tuple[str, ...], null: Flags) -> tuple[str, ...]:
    if null_keys == "leave_out" or not null.any():
        return ()
    counts = {name: int(training_set.hashes([name], 0)[1].sum()) for name in unit}
    named = ", ".join(f"{name} ({count})" for name, count in counts.items() if count)
    return (
        f"{counted(int(null.sum()), 'row')} without a value in a column that divides them: {named}. Correct the "
        "entity rows, or set `null_keys: leave_out`",
    )


def _left_out(flags: dict[str, Flags]) -> dict[str, int]:
    return {reason: int(flag.sum()) for reason, flag in flags.items() if flag.any()}


def _in_folds(spec: KFoldSplit, training_set: TrainingSet) -> Partition:
    unit = unit_of(spec, training_set)
    hashes, null = training_set.hashes(unit, seed_of(spec.seed, "fold"))
    problems = _null_problems(spec.null_keys, training_set, unit, null)
    test, gap = np.zeros((2, training_set.rows), np.bool_)
    if spec.test_from is not None:
        decision, label_time, missing = _times(training_set)
        problems += missing
        test = decision >= moment(spec.test_from)
        gap = ~test & ~in_time(decision, label_time, moment(spec.test_from), spec.gap)
    if spec.unit == "stratified":
        fold_of: Codes = np.full(training_set.rows, NONE, np.int8)
        inside, strata = ~(test | gap | null), _strata(spec.columns, training_set)
        drawn = fold_by_rank(hashes[inside], strata[inside], spec.folds, spec.test_fraction or 0.0)
        fold_of[inside], test[inside] = drawn
    else:
        # The fold of a row follows from its hash alone, and so does whether it is held out.
        fold_of = ((hashes >> np.uint64(32)) * np.uint64(spec.folds) >> np.uint64(32)).astype(np.int8)
        if spec.test_fraction is not None:
            bound = np.uint64(int(Fraction(spec.test_fraction) * _SPACE))
            test = training_set.hashes(unit, seed_of(spec.seed, "test"))[0] < bound

    def parts(number: int) -> Parts:
        codes = np.where(fold_of == number, np.int8(VALIDATION), np.int8(TRAIN))
        codes[test] = TEST
        codes[gap | null] = NONE
        return rows_of(codes)

    def fold(number: int) -> Parts:
        fold_parts = parts(number)
        return {name: fold_parts[name] for name in ("train", "validation")}

    left_out = _left_out({"gap": gap & ~null, _LEAVE: null})
    return Partition(parts(spec.folds - 1), left_out, spec.folds, fold, problems)


def by_threshold(hashes: Hashes, fractions: Fractions) -> Codes:
    """The part of every row: where its hash, as a number from 0 to 1, lies among the sums of the fractions."""
    codes = np.zeros(len(hashes), np.int8)
    for bound in _bounds(fractions):
        codes += hashes >= np.uint64(int(Fraction(bound) * _SPACE))
    return codes


def by_rank(hashes: Hashes, strata: Hashes, fractions: Fractions) -> Codes:
    """The part of every row, where each stratum holds the fractions to within one row; all of shape (rows,).

    Rows are ranked by hash within their stratum; a stratum of n rows is cut at n times the sums of the fractions,
    rounded half up. Rows of equal hash share a rank, so they stay together, and the order of rows does not matter.
    """
    ranks, sizes = _ranks(hashes, strata)
    codes = np.zeros(len(hashes), np.int8)
    for bound in _bounds(fractions):
        codes += ranks >= np.floor(bound * sizes + 0.5)
    return codes


def fold_by_rank(hashes: Hashes, strata: Hashes, folds: int, held_out: float = 0.0) -> tuple[Codes, Flags]:
    """The fold of every row, and whether it is held out; both to within one row in each stratum; shape (rows,).

    The share `held_out` of each stratum is its first rows by hash. Each stratum begins at a fold of its own, else small
    strata would all lie in the first.
    """
    ranks, sizes = _ranks(hashes, strata)
    cuts = np.floor(held_out * sizes + 0.5).astype(np.int64)
    first = (strata >> np.uint64(32)) * np.uint64(folds) >> np.uint64(32)
    dealt = (ranks - cuts) * folds // np.maximum(sizes - cuts, 1)
    return ((dealt + first.astype(np.int64)) % folds).astype(np.int8), ranks < cuts


def _bounds(fractions: Fractions) -> tuple[float, float]:
    return fractions.train, fractions.train + fractions.validation


def _ranks(hashes: Hashes, strata: Hashes) -> tuple[Rows, Rows]:
    """Rank of each row within its stratum, from 0, the least of equal hashes; and the size of its stratum."""
    count = len(hashes)
    numbers = pa.array(strata).dictionary_encode().indices.to_numpy()
    if count and int(numbers.max()) < 1 << 16:
        numbers = numbers.astype(np.uint16)  # numpy sorts these by radix.
    order = np.argsort(hashes)
    order = order[np.argsort(numbers[order], kind="stable")]
    places = np.arange(count)
    ordered, groups = hashes[order], numbers[order]
    new_group = np.ones(count, np.bool_)
    new_group[1:] = groups[1:] != groups[:-1]
    new_rank = new_group.copy()
    new_rank[1:] |= ordered[1:] != ordered[:-1]
    begins = np.maximum.accumulate(np.where(new_group, places, 0))
    least = np.maximum.accumulate(np.where(new_rank, places, 0))
    lengths = np.diff(np.append(np.flatnonzero(new_group), count))
    ranks, sizes = np.empty(count, np.int64), np.empty(count, np.int64)
    ranks[order] = least - begins
    sizes[order] = np.repeat(lengths, lengths)
    return ranks, sizes
