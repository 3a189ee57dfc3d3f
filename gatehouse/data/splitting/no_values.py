"""Features without any value in a part: a model learns nothing of them, or is measured as if it did not know them."""

from collections.abc import Iterator

import numpy as np

from gatehouse.data.splitting.checks import Subject
from gatehouse.data.splitting.partition import PARTS
from gatehouse.data.splitting.stable_hash import Flags
from gatehouse.data.splitting.training_set import TrainingSet
from gatehouse.runtime.counting import counted

_MOST = 0.5
"""If at least this share of train has a value, a part without any value is reported."""


def without_values(subject: Subject) -> Iterator[str]:
    """A sentence for each feature that has no value in train, or none in another part though most of train has one."""
    rows = {name: len(part) for name, part in subject.parts.items()}
    for feature in subject.training_set.features:
        sample = subject.profiles()[feature].counts.sum(axis=2)
        if sample[:, 1:].any(axis=1).all():
            continue
        # The profile is of a sample, in which a feature that few rows have may have no value.
        held = _held(subject.training_set, feature)
        known = {name: int(held[part].sum()) for name, part in subject.parts.items()}
        if not known["train"]:
            yield (
                f"{feature}: none of {counted(rows['train'], 'row')} of train has a value, so a model learns nothing "
                "of it. See why its query gives none at these decisions, or leave it out of the feature service"
            )
        elif known["train"] >= _MOST * rows["train"]:
            yield from (
                f"{feature}: none of {counted(rows[name], 'row')} of {name} has a value, but {known['train']:,} of "
                f"{rows['train']:,} of train do: {name} measures a model that lacks it. See why its source ends before "
                "this part, or move the boundaries"
                for name in PARTS[1:]
                if not known[name]
            )


def _held(training_set: TrainingSet, feature: str) -> Flags:
    """Whether each row has a value, shape (rows,)."""
    if feature in training_set.numeric:
        return np.isfinite(training_set.numbers(feature))
    held: Flags = training_set.column(feature).is_valid().to_numpy()
    return held
