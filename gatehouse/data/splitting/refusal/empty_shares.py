"""Says of each part of a split by hash that has no rows what was divided, how much of it there is, and what to set."""

import itertools
from collections.abc import Iterator, Mapping

import numpy as np

from gatehouse.configuration.duration import iso
from gatehouse.data.splitting import geography
from gatehouse.data.splitting.divide import divide, unit_of
from gatehouse.data.splitting.partition import PARTS, Parts
from gatehouse.data.splitting.spec import (
    EntitySplit,
    Fractions,
    GeographicSplit,
    GroupSplit,
    KFoldSplit,
    SplitSpec,
    StratifiedSplit,
)
from gatehouse.data.splitting.stable_hash import Flags
from gatehouse.data.splitting.time_order import in_time, moment
from gatehouse.data.splitting.training_set import TrainingSet
from gatehouse.runtime.counting import counted

_ENOUGH = 20
"""Units from which on a part without any is no chance, but too small a share."""
_TRIED, _SEEDS, _ROWS = 64, 16, 20_000_000
"""Other specifications that are tried, seeds for each number of folds, and rows that are divided for it at most."""
_TEST = 0.15
_MINUTE = np.timedelta64(1, "m")


def empty_shares(spec: SplitSpec, training_set: TrainingSet, parts: Parts) -> dict[str, str]:
    """Why parts have no rows, by part; of the first also what to do.

    Args:
        spec: A strategy by hash.
        training_set: Its rows; without any nothing is told.
        parts: The parts of the split, or of one fold.
    """
    empty = [name for name, rows in parts.items() if not len(rows)] if training_set.rows else []
    told = {name: f"has no rows. {_found(spec, training_set, name)}" for name in empty}
    return told | {name: f"{told[name]}. {_cure(spec, training_set, name)}" for name in empty[:1]}


def _found(spec: SplitSpec, training_set: TrainingSet, name: str) -> str:
    _, held = _held(spec, training_set)
    if isinstance(spec, KFoldSplit) and spec.test_from and _is_misplaced(spec, training_set, name):
        times = training_set.times(training_set.decision_time)
        first, last = (each.astype("datetime64[s]") for each in (times.min(), times.max()))
        before = f"with its gap of {iso(spec.gap)} has {held} before it for folds: {spec.folds}"
        side = "is the beginning" if name == PARTS[-1] else before
        return f"test_from: {spec.test_from.isoformat()} {side}; the decisions are from {first} to {last}"
    divided = f"What is divided: {held}, each of which stays in one part"
    if isinstance(spec, KFoldSplit):
        share = f" and test_fraction: {spec.test_fraction:g}" if spec.test_fraction else ""
        return f"{divided}; none came here of folds: {spec.folds}{share}"
    shares = getattr(spec, "fractions", Fractions())
    return f"{divided}; none came here by fractions.{name}: {getattr(shares, name):g}"


def _is_misplaced(spec: KFoldSplit, training_set: TrainingSet, name: str) -> bool:
    """Whether the part has no rows because of the time at which the test part begins: too little lies before it."""
    (before, _), (whole, _) = (
        _held(each, training_set) for each in (spec, spec.model_copy(update={"test_from": None}))
    )
    return name == PARTS[-1] or not before or before < spec.folds <= whole


def _held(spec: SplitSpec, training_set: TrainingSet) -> tuple[int, str]:
    """How many units the hash divides, and these with their rows in words."""
    if isinstance(spec, GeographicSplit):
        places = np.stack([training_set.numbers(name) for name in (spec.latitude, spec.longitude)])
        inside = ~np.isnan(places).any(axis=0)
        grid = geography.Grid(spec.cell_km)
        units, what = grid.hashes(*grid.cells(*places[:, inside]), 0), f"cell{{}} of {spec.cell_km:g} km"
    else:
        unit = unit_of(spec, training_set)
        hashes, null = training_set.hashes(unit, 0)
        inside = ~null & _before_test(spec, training_set)
        units, what = hashes[inside], f"value{{}} of {' with '.join(unit)}"
    count = len(np.unique(units))
    return count, f"{counted(int(inside.sum()), 'row')} with {count:,} distinct {what.format('s' * (count != 1))}"


def _before_test(spec: SplitSpec, training_set: TrainingSet) -> Flags:
    """Which rows lie before a test part that begins at a time, and its gap; all rows where there is none."""
    if not isinstance(spec, KFoldSplit) or spec.test_from is None:
        return np.ones(training_set.rows, np.bool_)
    decision, known = (training_set.times(each) for each in (training_set.decision_time, training_set.label_time))
    return in_time(decision, known, moment(spec.test_from), spec.gap)


def _cure(spec: SplitSpec, training_set: TrainingSet, name: str) -> str:
    if isinstance(spec, KFoldSplit) and spec.test_from and _is_misplaced(spec, training_set, name):
        times = training_set.times(training_set.decision_time)
        begins = times.max() - (times.max() - times.min()) * _TEST // _MINUTE * _MINUTE
        return f"Set a time between these, such as test_from: {begins.astype('datetime64[s]')}, and a gap that fits"
    count, _ = _held(spec, training_set)
    if lines := next(_filling(spec, training_set, count), None):
        return f"Set {lines}, with which every part has rows"
    if training_set.rows < len(PARTS):
        return "Bring more rows"
    if isinstance(spec, StratifiedSplit):
        return "Name strata that have more rows each, or set strategy: random"
    if isinstance(spec, GeographicSplit):
        return "Set a smaller cell_km and buffer_km, or set strategy: random"
    in_groups = isinstance(spec, EntitySplit | GroupSplit) or getattr(spec, "unit", "") in ("entity", "group")
    by_row = ", or set strategy: random, which divides row by row" * in_groups
    return f"Bring rows with more values of {' with '.join(unit_of(spec, training_set))}{by_row}"


def _filling(spec: SplitSpec, training_set: TrainingSet, units: int) -> Iterator[str]:
    """Lines of a specification that differs in a key or two, and leaves no part empty."""
    for change in itertools.islice(_changes(spec, units), max(1, min(_TRIED, _ROWS // training_set.rows))):
        partition = divide(spec.model_copy(update=change), training_set).partition
        scopes = itertools.chain([partition.parts], (fold for _, fold in partition.every_fold()))
        if all(len(rows) for parts in scopes for rows in parts.values()):
            yield " and ".join(f"{key}: {_written(value)}" for key, value in change.items())


def _changes(spec: SplitSpec, units: int) -> Iterator[Mapping[str, int | float | Fractions]]:
    if isinstance(spec, KFoldSplit):
        if spec.test_fraction and units >= _ENOUGH:
            yield {"test_fraction": _TEST}
        for folds in range(min(spec.folds, units), 1, -1):
            yield from ({"folds": folds} | ({"seed": seed} if seed else {}) for seed in range(_SEEDS))
        return
    if units >= _ENOUGH:
        yield {"fractions": Fractions()}
    yield from ({"seed": seed} for seed in range(1, _TRIED))


def _written(value: int | float | Fractions) -> str:
    if isinstance(value, Fractions):
        return f"{{{', '.join(f'{part}: {share:g}' for part, share in value)}}}"
    return f"{value:g}"
