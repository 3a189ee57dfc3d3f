"""The rows of an evaluation, of which the bootstrap draws units, and the predictions of models for them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np

from gatehouse.evaluation.bootstrap import Units
from gatehouse.metrics.metric import Array, Predictions
from gatehouse.pieces.piece import KIND
from gatehouse.store.store import ArtifactStore


@dataclass(frozen=True)
class Sample:
    """Labelled rows, and predictions for them by role.

    Attributes:
        labels: Shape (rows,).
        divisions: The ways in which rows are divided into parts: each has the number of every row's part, from 0
            without gaps, shape (rows,).
    """

    labels: Array
    predictions: Mapping[str, Predictions]
    units: Units
    divisions: Sequence[Array] = ()

    def published(self, store: ArtifactStore) -> str:
        """Publish the rows for workers; returns the reference."""
        arrays = {"labels": self.labels} | {f"division {number}": of for number, of in enumerate(self.divisions)}
        if self.units.of_row is not None:
            arrays["units"] = self.units.of_row
        for role, read in self.predictions.items():
            arrays |= {f"{role} {form}": values for form, values in vars(read).items() if values is not None}
        with store.workspace() as workspace:
            for name, values in arrays.items():
                np.save(workspace / f"{name}.npy", values, allow_pickle=False)
            files = {f"{name}.npy": workspace / f"{name}.npy" for name in arrays}
            return str(store.publish(KIND, "sample", files, details={"units": self.units.number}))

    @classmethod
    def read(cls, store: ArtifactStore, reference: str, role: str) -> "Sample":
        """The published rows with the predictions of one role."""
        manifest = store.manifest(reference)
        names = {entry.path.removesuffix(".npy") for entry in manifest.files}

        def array(name: str) -> Array:
            values: Array = np.load(store.path(reference, f"{name}.npy"), allow_pickle=False)
            return values

        forms = [form.name for form in fields(Predictions) if f"{role} {form.name}" in names]
        read = Predictions(**{form: array(f"{role} {form}") for form in forms})
        units = Units("unit", manifest.details["units"], array("units") if "units" in names else None)
        divisions = [array(name) for number in range(len(names)) if (name := f"division {number}") in names]
        return cls(array("labels"), {role: read}, units, divisions)
