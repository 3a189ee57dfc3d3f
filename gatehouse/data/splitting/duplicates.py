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

from gatehouse.data.splitting.partition import PARTS, Parts
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

    Args:
        training_set: Its features are compared.
        parts: Row numbers by part, each of shape (rows of the part,).
        near: Step of the grid in standard deviations.
        labels: Of all rows, shape (rows,).
    """
    exact, grids = _feature_hashes(training_set, _spreads(training_set, parts["train"]), near)
    found: dict[str, dict[tuple[str, str], npt.NDArray[np.bool_]]] = {}
    for name, hashes in (("exact", exact), *((f"near {number}", grid) for number, grid in enumerate(grids))):
        found[name] = {pair: _held(hashes, parts, pair) for pair in combinations(PARTS, 2)}
    shared = []
    for pair in combinations(PARTS, 2):
        same = found["exact"][pair]
        close = np.zeros(len(same), np.bool_)
        for number in range(len(grids)):
            close |= found[f"near {number}"][pair]
        earlier, later = parts[pair[0]], parts[pair[1]][same]
        differ = _differ(exact, labels, earlier, later)
        shared.append(Shared(*pair, len(same), int(same.sum()), int((close & ~same).sum()), differ))
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


def _counted(held: Hashes, asked: Hashes) -> npt.NDArray[np.int64]:
    """How many of `held` equal each of `asked`, shape (asked,)."""
    ordered = np.sort(held)
    return np.searchsorted(ordered, asked, "right") - np.searchsorted(ordered, asked, "left")


def _held(hashes: Hashes, parts: Parts, pair: tuple[str, str]) -> npt.NDArray[np.bool_]:
    """Which rows of the second part have a hash of the first."""
    held, asked = np.sort(hashes[parts[pair[0]]]), hashes[parts[pair[1]]]
    if not len(held):
        return np.zeros(len(asked), np.bool_)
    # Searching sorted values in order keeps the search in the processor's cache.
    order = np.argsort(asked)
    places = np.minimum(np.searchsorted(held, asked[order]), len(held) - 1)
    found = np.empty(len(asked), np.bool_)
    found[order] = held[places] == asked[order]
    return found


def _spreads(training_set: TrainingSet, train: npt.NDArray[np.int64]) -> dict[str, float]:
    """Standard deviation of each numeric feature in train; 1 where it has none."""
    found = {}
    for name in training_set.numeric:
        values = training_set.numbers(name)[train[:: max(1, len(train) // 100_000)]]
        known = values[np.isfinite(values)]
        spread = float(np.std(known)) if len(known) else 0.0
        found[name] = spread if np.isfinite(spread) and spread > 0 else 1.0
    return found


def _feature_hashes(
    training_set: TrainingSet, spreads: dict[str, float], near: float
) -> tuple[Hashes, tuple[Hashes, ...]]:
    """Hash of each row's features, as they are and on each grid."""
    start = np.uint64(seed_of(0, "features"))
    exact: list[Hashes] = [np.empty(0, np.uint64)]
    grids: list[list[Hashes]] = [[np.empty(0, np.uint64)] for _ in _SHIFTS]
    for columns in training_set.batches(training_set.features):
        states = [np.full(len(columns[0]), start) for _ in range(1 + len(_SHIFTS))]
        for name, column in zip(training_set.features, columns, strict=True):
            digest = hash_column(column)
            states[0] = mix(states[0] ^ digest)
            stepped = _steps(column, near * spreads[name]) if name in spreads else (digest, digest)
            states[1:] = [mix(state ^ step) for state, step in zip(states[1:], stepped, strict=True)]
        exact.append(states[0])
        for grid, state in zip(grids, states[1:], strict=True):
            grid.append(state)
    return np.concatenate(exact), tuple(np.concatenate(grid) for grid in grids)


def _steps(column: pa.Array, step: float) -> tuple[Hashes, ...]:
    """The step of each number on each grid."""
    plain = pc.cast(column, pa.int8()) if pa.types.is_boolean(column.type) else column
    numbers = pc.cast(plain, pa.float64(), safe=False).to_numpy(zero_copy_only=False) / step
    missing = is_missing(column)
    found = []
    for shift in _SHIFTS:
        stepped = np.clip(np.nan_to_num(np.floor(numbers + shift), nan=0.0), -_EXTREME, _EXTREME).astype(np.int64)
        found.append(np.where(missing, np.uint64(1 << 63), stepped.view(np.uint64)))
    return tuple(found)
