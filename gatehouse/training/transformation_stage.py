"""The stage that fits a transformation on the train part of a split."""

from gatehouse.store.canonical import canonical_json
from gatehouse.store.identity import identity_of
from gatehouse.store.stage import StageModel, stage
from gatehouse.store.store import ArtifactStore
from gatehouse.training.model_spec import TransformationSpec


class FitRequest(StageModel):
    """The rows to fit on, and what to fit."""

    split: str
    spec: TransformationSpec = TransformationSpec()
    model_name: str


class FitResult(StageModel):
    """The fitted transformation."""

    transformation: str


@stage("fit_transformation", title="Fit the transformation")
def fit_transformation(request: FitRequest, store: ArtifactStore) -> FitResult:
    """Fit on the train part, which is all that is read; the artifact holds `transformation.json`."""
    from gatehouse.data.splitting.parts import divided_set
    from gatehouse.training.job import read_part
    from gatehouse.training.transformation import FILE, FeatureError, fit

    training_set = divided_set(store, request.split)
    details = store.manifest(training_set).details
    rows = read_part(store, request.split, "train")
    if rows.num_rows == 0:
        raise FeatureError(f"The train part of {request.split} has no rows to fit on. Move its boundaries.")
    fitted = fit(rows, details["numeric"], details["categorical"], request.spec)
    reference = store.publish(
        "transformations",
        request.model_name,
        {FILE: canonical_json(fitted.to_json())},
        derived_from={"training_set": training_set, "split": request.split},
        configuration=identity_of(request.spec),
        details={"rows": rows.num_rows, "width": fitted.width},
    )
    return FitResult(transformation=str(reference))
