"""Features without any value in a part: a model learns nothing of them, or is measured as if it did not know them."""

from collections.abc import Iterator

from gatehouse.components.splitting.checks import Subject
from gatehouse.components.splitting.partition import PARTS
from gatehouse.components.splitting.profile import sampled

_MOST = 0.5
"""Share of train with a value from which on a part without any is another world."""


def without_values(subject: Subject) -> Iterator[str]:
    """A sentence for each feature that has no value in train, or none in another part though most of train has one."""
    rows = {name: len(part) for name, part in sampled(subject.parts).items()}
    for feature in subject.training_set.features:
        table = subject.profiles()[feature].counts.sum(axis=2)
        known = {name: rows[name] - int(table[index, 0]) for index, name in enumerate(PARTS)}
        if not known["train"]:
            yield (
                f"{feature}: none of {rows['train']:,} rows of train has a value, so a model learns nothing of it. See "
                "why its query gives none at these decisions, or leave it out of the feature service"
            )
        elif known["train"] >= _MOST * rows["train"]:
            yield from (
                f"{feature}: none of {rows[name]:,} rows of {name} has a value, but {known['train']:,} of "
                f"{rows['train']:,} of train do: {name} measures a model that lacks it. See why its source ends before "
                "this part, or move the boundaries"
                for name in PARTS[1:]
                if not known[name]
            )
