"""Gives every row its part, by the strategy that the specification names."""

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import assert_never

import numpy as np

from gatehouse.data.splitting import geography, hashed
from gatehouse.data.splitting.partition import NONE, Codes, Partition, rows_of
from gatehouse.data.splitting.spec import (
    EntitySplit,
    GeographicSplit,
    GroupSplit,
    KFoldSplit,
    RandomSplit,
    RollingOriginSplit,
    SplitSpec,
    StratifiedSplit,
    TimeSplit,
)
from gatehouse.data.splitting.stable_hash import Flags, Hashes, seed_of
from gatehouse.data.splitting.time_order import divide as divide_by_time
from gatehouse.data.splitting.time_order import in_time, moment
from gatehouse.data.splitting.training_set import Times, TrainingSet
from gatehouse.errors import ConfigurationError
from gatehouse.runtime.counting import counted
from gatehouse.store.hidden_values import unless_hidden

_LEAVE = "null keys"


@dataclass(frozen=True)
class Divided:
    """A partition, and what keeps the rows from being divided, one a line; with any problem there is no split."""

    partition: Partition
    problems: list[str] = field(default_factory=list)


def unit_of(spec: SplitSpec, training_set: TrainingSet) -> tuple[str, ...]:
    """The columns whose values together stay on one side: a row's key, an entity, a group; empty for other strategies.

    Raises:
        ConfigurationError: if the entity is made of columns that are no entity keys.
    """
    row_key = (*training_set.entity_keys, training_set.decision_time)
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
    others = [name for name in keys if name not in training_set.entity_keys]
    if others or not training_set.entity_keys:
        raise ConfigurationError(
            f"split: expected an entity of the entity keys {', '.join(training_set.entity_keys) or '(none)'}, found "
            f"{', '.join(others) or 'none'}. To split by other columns, use the strategy `group`."
        )
    return keys or training_set.entity_keys


def divide(spec: SplitSpec, training_set: TrainingSet) -> Divided:
    """Divide the rows.

    Raises:
        ConfigurationError: if the training set has not the columns that the strategy reads.
    """
    match spec:
        case TimeSplit() | RollingOriginSplit():
            return _in_time(spec, training_set)
        case GeographicSplit():
            return _on_earth(spec, training_set)
        case KFoldSplit():
            return _in_folds(spec, training_set)
        case RandomSplit() | EntitySplit() | GroupSplit() | StratifiedSplit():
            return _in_fractions(spec, training_set)
        case _:
            assert_never(spec)


def _in_time(spec: TimeSplit | RollingOriginSplit, training_set: TrainingSet) -> Divided:
    training_set.require([training_set.decision_time, training_set.label_time])
    decision, known = (training_set.times(name) for name in (training_set.decision_time, training_set.label_time))
    last = spec if isinstance(spec, TimeSplit) else spec.at(spec.origins - 1)
    parts = divide_by_time(decision, known, last)
    partition = Partition(parts, {"gap": training_set.rows - sum(len(rows) for rows in parts.values())})
    if isinstance(spec, RollingOriginSplit):
        rolling = spec

        def fold(number: int) -> dict[str, np.ndarray]:
            found = divide_by_time(decision, known, rolling.at(number))
            return {name: found[name] for name in ("train", "validation")}

        partition = replace(partition, folds=spec.origins, fold=fold)
    return Divided(partition, _timeless(training_set, decision, known))


def _in_fractions(spec: RandomSplit | EntitySplit | GroupSplit | StratifiedSplit, training_set: TrainingSet) -> Divided:
    unit = unit_of(spec, training_set)
    hashes, null = training_set.hashes(unit, seed_of(spec.seed, "part"))
    problems = _null_problems(spec, training_set, unit, null)
    if isinstance(spec, StratifiedSplit):
        strata = _strata(spec.strata, training_set)
        codes = np.full(training_set.rows, NONE, np.int8)
        codes[~null] = hashed.by_rank(hashes[~null], strata[~null], spec.fractions)
    else:
        codes = hashed.by_threshold(hashes, spec.fractions)
        codes[null] = NONE
    return Divided(Partition(rows_of(codes), _left_out({_LEAVE: null})), problems)


def _strata(columns: tuple[str, ...], training_set: TrainingSet) -> Hashes:
    """Hash of each row's stratum; a missing value is a stratum of its own.

    Raises:
        ConfigurationError: if the label is to be the stratum and is a number, of which no two rows may have the same.
    """
    if not columns and not training_set.task.has_classes:
        raise ConfigurationError(
            f"split.strata: expected columns whose values are kept in balance, as the label of the task "
            f"{training_set.task.name} has too many values for strata; found none. Name columns, or take the strategy "
            "random."
        )
    return training_set.hashes(columns or (training_set.label,), seed_of(0, "stratum"))[0]


def _null_problems(
    spec: RandomSplit | EntitySplit | GroupSplit | StratifiedSplit | KFoldSplit,
    training_set: TrainingSet,
    unit: tuple[str, ...],
    null: Flags,
) -> list[str]:
    if spec.null_keys == "leave_out" or not null.any():
        return []
    counts = {name: int(training_set.hashes([name], 0)[1].sum()) for name in unit}
    named = ", ".join(f"{name} ({count})" for name, count in counts.items() if count)
    return [
        f"{counted(int(null.sum()), 'row')} without a value in a column that divides them: {named}. Correct the "
        "entity rows, or set `null_keys: leave_out`"
    ]


def _left_out(flags: dict[str, Flags]) -> dict[str, int]:
    return {reason: int(flag.sum()) for reason, flag in flags.items() if flag.any()}


def _in_folds(spec: KFoldSplit, training_set: TrainingSet) -> Divided:
    unit = unit_of(spec, training_set)
    hashes, null = training_set.hashes(unit, seed_of(spec.seed, "fold"))
    problems = _null_problems(spec, training_set, unit, null)
    test, gap = np.zeros((2, training_set.rows), np.bool_)
    if spec.test_from is not None:
        test, gap, late = _held_out(spec.test_from, spec.gap, training_set)
        problems += late
    if spec.unit == "stratified":
        fold_of: Codes = np.full(training_set.rows, NONE, np.int8)
        inside, strata = ~(test | gap | null), _strata(spec.columns, training_set)
        drawn = hashed.fold_by_rank(hashes[inside], strata[inside], spec.folds, spec.test_fraction or 0.0)
        fold_of[inside], test[inside] = drawn
    else:
        fold_of = hashed.fold_by_threshold(hashes, spec.folds)
        if spec.test_fraction is not None:
            test = hashed.held_out(training_set.hashes(unit, seed_of(spec.seed, "test"))[0], spec.test_fraction)
    partition = hashed.k_folds(fold_of, test, gap | null, spec.folds)
    return Divided(replace(partition, left_out=_left_out({"gap": gap & ~null, _LEAVE: null})), problems)


def _held_out(begins_at: datetime, gap: timedelta, training_set: TrainingSet) -> tuple[Flags, Flags, list[str]]:
    """Which rows are the test part, which are in the gap before it, and what is wrong with their times."""
    training_set.require([training_set.decision_time, training_set.label_time])
    decision, known = (training_set.times(name) for name in (training_set.decision_time, training_set.label_time))
    begins = moment(begins_at)
    test = decision >= begins
    before = in_time(decision, known, begins, gap)
    return test, ~test & ~before, _timeless(training_set, decision, known)


def _timeless(training_set: TrainingSet, decision: Times, known: Times) -> list[str]:
    named = ((training_set.decision_time, decision), (training_set.label_time, known))
    counts = {name: int(np.isnat(times).sum()) for name, times in named}
    return [
        f"{counted(count, 'row')} without {name}: nobody can tell on which side they are. Correct the entity rows"
        for name, count in counts.items()
        if count
    ]


def _on_earth(spec: GeographicSplit, training_set: TrainingSet) -> Divided:
    training_set.require([spec.latitude, spec.longitude])
    latitude, longitude = training_set.numbers(spec.latitude), training_set.numbers(spec.longitude)
    null = np.isnan(latitude) | np.isnan(longitude)
    problems = [
        f"{counted(int(wrong.sum()), 'row')} with a {name} outside {low} to {high} degrees, "
        + unless_hidden(f"the first {values[wrong][0]:g}")
        for name, values, low, high in ((spec.latitude, latitude, -90, 90), (spec.longitude, longitude, -180, 360))
        if (wrong := (values < low) | (values > high)).any()
    ]
    if null.any() and spec.null_keys == "refuse":
        problems.append(
            f"{counted(int(null.sum()), 'row')} without a place in {spec.latitude} and {spec.longitude}. Correct the "
            "entity rows, or set `null_keys: leave_out`"
        )
    codes = np.full(training_set.rows, NONE, np.int8)
    buffered = np.zeros(training_set.rows, np.bool_)
    if not problems:
        known = np.flatnonzero(~null)
        codes[known], near = _cells(spec, latitude[known], longitude[known])
        buffered[known] = near
        codes[buffered] = NONE
    left_out = _left_out({"buffer": buffered, _LEAVE: null})
    return Divided(Partition(rows_of(codes), left_out), problems)


def _cells(spec: GeographicSplit, latitude: geography.Floats, longitude: geography.Floats) -> tuple[Codes, Flags]:
    """The part of each point, and whether it lies in the buffer."""
    grid, start = geography.Grid(spec.cell_km), seed_of(spec.seed, "cell")

    def part_of(cells: Hashes) -> Codes:
        return hashed.by_threshold(cells, spec.fractions)

    codes = part_of(grid.hashes(*grid.cells(latitude, longitude), start))
    if spec.buffer_km == 0:
        return codes, np.zeros(len(codes), np.bool_)
    return codes, geography.near_other_part(grid, latitude, longitude, spec.buffer_km, start, part_of)
