"""The stage that fits a transformation on the train part of a split, and reading it again."""

from typing import TYPE_CHECKING

from gatehouse.components.artifacts.canonical import canonical_json
from gatehouse.components.artifacts.declaration import Resources
from gatehouse.components.artifacts.reference import Reference
from gatehouse.components.artifacts.stage import StageModel, stage
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.training.transformation.spec import TransformationSpec

if TYPE_CHECKING:
    from gatehouse.components.training.transformation.fitted import Transformation

FILE = "transformation.json"


class FitRequest(StageModel):
    """The rows to fit on, and what to fit."""

    training_set: str
    split: str
    spec: TransformationSpec = TransformationSpec()
    model_name: str


class FitResult(StageModel):
    """The fitted transformation."""

    transformation: str


@stage("fit_transformation", title="Fit the transformation", resources=Resources(cpu="2", memory="4G"))
def fit_transformation(request: FitRequest, store: ArtifactStore) -> FitResult:
    """Fit on the train part, which is all that is read; the artifact holds `transformation.json`.

    Raises:
        FeatureError: if a feature or the split cannot be used, or the spec names what is no feature.
    """
    from gatehouse.components.training.data.parts import read_part
    from gatehouse.components.training.transformation.columns import FeatureError
    from gatehouse.components.training.transformation.fitted import Transformation

    details = store.manifest(request.training_set).details
    numeric, categorical = details["numeric"], details["categorical"]
    rows = read_part(store, request.training_set, request.split, "train")
    if rows.num_rows == 0:
        raise FeatureError(
            f"The train part of {request.split} has no rows to fit on. Move the boundaries of the split."
        )
    fitted = Transformation.fit(rows, numeric, categorical, request.spec)
    reference = store.publish(
        "transformations",
        request.model_name,
        {FILE: canonical_json(fitted.to_json())},
        derived_from={"training_set": request.training_set, "split": request.split},
        configuration=request.spec.model_dump(mode="json"),
        details={"rows": rows.num_rows, "width": fitted.width},
    )
    return FitResult(transformation=str(reference))


def read_transformation(
    store: ArtifactStore, training_set: str, split: str, transformation: str = ""
) -> "tuple[str, Transformation]":
    """The transformation that `transformation` names, with its reference; empty fits the default one, memoised.

    Raises:
        FeatureError: if it was fitted on another training set or split, whose train rows may be test rows of this one.
    """
    from gatehouse.components.training.transformation.columns import FeatureError
    from gatehouse.components.training.transformation.fitted import Transformation

    if not transformation:
        name = Reference.parse(training_set).name
        wanted = FitRequest(training_set=training_set, split=split, model_name=name)
        transformation = fit_transformation(wanted, store).transformation
    fitted_on = store.manifest(transformation).derived_from
    expected = {"training_set": str(Reference.parse(training_set)), "split": str(Reference.parse(split))}
    for role, reference in expected.items():
        if fitted_on.get(role) != reference:
            raise FeatureError(
                f"{transformation} was fitted on {fitted_on.get(role, 'nothing')}, expected {reference}. "
                "Fit one on the train part of this split."
            )
    return transformation, Transformation.from_json(store.read_json(transformation, FILE))
