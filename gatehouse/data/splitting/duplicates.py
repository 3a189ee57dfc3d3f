"""Rows with the features of another part's row, or nearly: found through hashes of the features.

A near duplicate has the same categories, and numbers that fall into the same steps of a grid; the step is a share of
each number's standard deviation in train. Two grids are laid, shifted by half a step, so that a pair is missed only
where each grid parts it. What is found are near duplicates; that there are no more is not promised.

Few coarse features are equal in many rows that are other events. What tells these from copies are the labels: those of
copies agree, those of other events differ nearly as often as the labels of any two rows.
"""

from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gatehouse.data.splitting.divide import PARTS, Parts
from gatehouse.data.splitting.stable_hash import Hashes, hash_column, is_missing, mix, seed_of
from gatehouse.data.splitting.training_set import Labels, TrainingSet

COPIES = 0.05
"""Labels of rows with equal features are those of copies where they differ less than this, of what chance gives."""
_SHIFTS = (0.0, 0.5)
_EXTREME = 2.0**62


@dataclass(frozen=True)
class Shared:
    """How many rows of the later part repeat a row of the earlier one: exactly, and otherwise nearly.

    `differ` is how often the labels of rows with exactly the same features differ, as a share of how often those of any
    two rows do: 0 among copies, about 1 where the features do not tell the label.
    """

    earlier: str
    later: str
    rows: int
    exact: int
    near: int
    differ: float

    @property
    def of_labels(self) -> str:
        """What the labels of rows with equal features say of them."""
        if self.differ < COPIES:
            return "Their labels agree (nearly) always, as those of copies do"
        if round(self.differ, 2) < 1:
            return f"Their labels differ less often than those of any two rows do ({self.differ:.2f} times as often)"
        return "Their labels differ as often as those of any two rows do, so these may be other events that look alike"


def shared_rows(training_set: TrainingSet, parts: Parts, near: float, labels: Labels) -> list[Shared]:
    """Look for duplicates across all pairs of parts.

    `near` is the step of the grid in standard deviations.
    """
    exact, *grids = _feature_hashes(training_set, parts["train"], near)
    shared = []
    for earlier, later in combinations(PARTS, 2):
        same, *close = (_repeated(hashes, parts[earlier], parts[later]) for hashes in (exact, *grids))
        differ = _differ(exact, labels, parts[earlier], parts[later][same])
        nearly = np.any(close, axis=0) & ~same
        shared.append(Shared(earlier, later, len(same), int(same.sum()), int(nearly.sum()), differ))
    return shared


def _differ(hashes: Hashes, labels: Labels, earlier: npt.NDArray[np.int64], later: npt.NDArray[np.int64]) -> float:
    """Mean share of the earlier rows of a row's hash that have another label, over that of all earlier rows."""
    if not len(later):
        return 0.0
    values = labels.astype(np.float64).view(np.uint64)
    alike, all_alike = (
        _counted(keys[earlier], keys[later]) for keys in (mix(hashes ^ mix(values.copy())), mix(values.copy()))
    )
    chance = float(np.mean(1 - all_alike / len(earlier)))
    return float(np.mean(1 - alike / _counted(hashes[earlier], hashes[later]))) / chance if chance > 0 else 0.0


def _counted(hashes: Hashes, values: Hashes) -> npt.NDArray[np.int64]:
    """How many of the hashes equal each value, shape (values,)."""
    ordered = np.sort(hashes)
    return np.searchsorted(ordered, values, "right") - np.searchsorted(ordered, values, "left")


def _repeated(hashes: Hashes, earlier: npt.NDArray[np.int64], later: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Which of the later rows have the hash of an earlier one."""
    seen, values = np.sort(hashes[earlier]), hashes[later]
    repeated = np.zeros(len(values), np.bool_)
    if len(seen):
        # Searching sorted values in order keeps the search in the processor's cache.
        order = np.argsort(values)
        places = np.minimum(np.searchsorted(seen, values[order]), len(seen) - 1)
        repeated[order] = seen[places] == values[order]
    return repeated


def _feature_hashes(training_set: TrainingSet, train: npt.NDArray[np.int64], near: float) -> list[Hashes]:
    """Hash of each row's features, as they are, and on each grid; steps are `near` standard deviations in train."""
    sample, steps = train[:: max(1, len(train) // 100_000)], dict[str, float]()
    for name in training_set.numeric:
        values = training_set.numbers(name)[sample]
        values = values[np.isfinite(values)]
        spread = float(np.std(values)) if len(values) else 0.0
        steps[name] = near * (spread if np.isfinite(spread) and spread > 0 else 1.0)
    start = np.uint64(seed_of(0, "features"))
    hashes: list[list[Hashes]] = [[np.empty(0, np.uint64)] for _ in range(1 + len(_SHIFTS))]
    for columns in training_set.batches(training_set.features):
        states = [np.full(len(columns[0]), start) for _ in hashes]
        for name, column in zip(training_set.features, columns, strict=True):
            digest = hash_column(column)
            on_grids = _steps(column, steps[name]) if name in steps else [digest] * len(_SHIFTS)
            states = [mix(state ^ part) for state, part in zip(states, [digest, *on_grids], strict=True)]
        for parts, state in zip(hashes, states, strict=True):
            parts.append(state)
    return [np.concatenate(parts) for parts in hashes]


def _steps(column: pa.Array, step: float) -> list[Hashes]:
    """The step of each number on each grid."""
    plain = pc.cast(column, pa.int8()) if pa.types.is_boolean(column.type) else column
    numbers = pc.cast(plain, pa.float64(), safe=False).to_numpy(zero_copy_only=False) / step
    missing = is_missing(column)
    floors = [np.nan_to_num(np.floor(numbers + shift), nan=0.0).clip(-_EXTREME, _EXTREME) for shift in _SHIFTS]
    return [np.where(missing, np.uint64(1 << 63), floor.astype(np.int64).view(np.uint64)) for floor in floors]
