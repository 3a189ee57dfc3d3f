"""Rows with the features of another part's row, which hashes of the features show.

Few coarse features are equal in many rows that are other events. What tells these from copies are the labels: those of
copies agree, those of other events differ nearly as often as the labels of any two rows.
"""

from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from gatehouse.data.splitting.divide import PARTS, Parts
from gatehouse.data.splitting.stable_hash import Hashes, mix, seed_of
from gatehouse.data.splitting.training_set import Labels, TrainingSet

COPIES = 0.05
"""Labels of rows with equal features are those of copies where they differ less than this, of what chance gives."""


@dataclass(frozen=True)
class Shared:
    """How many rows of the later part repeat a row of the earlier one.

    `differ` is how often the labels of rows with the same features differ, as a share of how often those of any
    two rows do: 0 among copies, about 1 where the features do not tell the label.
    """

    earlier: str
    later: str
    rows: int
    repeated: int
    differ: float

    @property
    def of_labels(self) -> str:
        """What the labels of rows with equal features say of them."""
        if self.differ < COPIES:
            return "Their labels agree (nearly) always, as those of copies do"
        if round(self.differ, 2) < 1:
            return f"Their labels differ less often than those of any two rows do ({self.differ:.2f} times as often)"
        return "Their labels differ as often as those of any two rows do, so these may be other events that look alike"


def shared_rows(training_set: TrainingSet, parts: Parts, labels: Labels) -> list[Shared]:
    """Look for duplicates across all pairs of parts."""
    hashes, _ = training_set.hashes(training_set.features, seed_of(0, "features"))
    values = labels.astype(np.float64).view(np.uint64)
    with_label, labels_alone = mix(hashes ^ mix(values)), mix(values)
    shared = []
    for earlier, later in combinations(PARTS, 2):
        before, after = parts[earlier], parts[later]
        seen, sought = np.sort(hashes[before]), hashes[after]
        same = np.zeros(len(after), np.bool_)
        if len(seen):
            # Searching sorted values in order keeps the search in the processor's cache.
            order = np.argsort(sought)
            places = np.minimum(np.searchsorted(seen, sought[order]), len(seen) - 1)
            same[order] = seen[places] == sought[order]
        differ, copies = 0.0, after[same]
        if len(copies):
            # The mean share of the earlier rows of a row's hash with another label, over that of all earlier rows.
            chance = float(np.mean(1 - _counted(labels_alone[before], labels_alone[copies]) / len(before)))
            alike = _counted(with_label[before], with_label[copies]) / _counted(hashes[before], hashes[copies])
            differ = float(np.mean(1 - alike)) / chance if chance > 0 else 0.0
        shared.append(Shared(earlier, later, len(same), int(same.sum()), differ))
    return shared


def _counted(hashes: Hashes, values: Hashes) -> npt.NDArray[np.int64]:
    """How many of the hashes equal each value, shape (values,)."""
    ordered = np.sort(hashes)
    return np.searchsorted(ordered, values, "right") - np.searchsorted(ordered, values, "left")
