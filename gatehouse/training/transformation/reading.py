"""Reads a fitted transformation, and refuses one that was fitted on other rows."""

from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore
from gatehouse.training.transformation.columns import FeatureError
from gatehouse.training.transformation.fitted import FILE, Transformation


def read_transformation(store: ArtifactStore, training_set: str, split: str, transformation: str) -> Transformation:
    """The transformation that `transformation` names.

    Raises:
        FeatureError: if it was fitted on another training set or split, whose train rows may be test rows of this one.
    """
    fitted_on = store.manifest(transformation).derived_from
    expected = {"training_set": str(Reference.parse(training_set)), "split": str(Reference.parse(split))}
    for role, reference in expected.items():
        if fitted_on.get(role) != reference:
            raise FeatureError(
                f"{transformation} was fitted on {fitted_on.get(role, 'nothing')}, expected {reference}. "
                "Fit one on the train part of this split."
            )
    return Transformation.from_json(store.read_json(transformation, FILE))
