"""The stage that fits a transformation on the train part of a split; features are divided into pieces."""

import json
from collections.abc import Sequence

from gatehouse.pieces.piece import KIND, batches, piece, run_pieces
from gatehouse.store.canonical import canonical_json
from gatehouse.store.identity import identity_of
from gatehouse.store.stage import StageModel, stage
from gatehouse.store.store import ArtifactStore
from gatehouse.training.model_spec import TransformationSpec

_VALUES = 1 << 22
"""About how many values of features a piece fits on."""


class FitRequest(StageModel):
    """The rows to fit on, and what to fit."""

    split: str
    spec: TransformationSpec = TransformationSpec()
    model_name: str


class FitResult(StageModel):
    """The fitted transformation."""

    transformation: str


class ColumnsRequest(StageModel):
    """Some features, and the rows to fit them on."""

    split: str
    spec: TransformationSpec
    features: tuple[str, ...]


class ColumnsResult(StageModel):
    """The fitted features: the reference of a transformation of these alone."""

    columns: str


@piece
def fit_columns(request: ColumnsRequest, store: ArtifactStore) -> ColumnsResult:
    """Fit features on the train part. Raises FeatureError as `fit`."""
    from gatehouse.training.job import read_part
    from gatehouse.training.transformation import FILE, fit

    training_set, (numeric, categorical) = _features(store, request.split, request.features)
    fitted = fit(read_part(store, request.split, "train"), numeric, categorical, request.spec)
    origin = {"training_set": training_set, "split": request.split}
    files = {FILE: canonical_json(fitted.to_json())}
    return ColumnsResult(columns=str(store.publish(KIND, "transformation", files, derived_from=origin)))


@stage("fit_transformation", title="Fit the transformation")
def fit_transformation(request: FitRequest, store: ArtifactStore) -> FitResult:
    """Fit on the train part, which is all that is read; the artifact holds `transformation.json`."""
    from gatehouse.training.job import read_part
    from gatehouse.training.transformation import FILE, FeatureError, Transformation, require_features

    training_set, (numeric, categorical) = _features(store, request.split)
    rows = read_part(store, request.split, "train")
    if rows.num_rows == 0:
        raise FeatureError(f"The train part of {request.split} has no rows to fit on. Move its boundaries.")
    require_features(rows, numeric, categorical, request.spec)
    features, spec = [*numeric, *categorical], request.spec
    calls = [
        (
            fit_columns,
            ColumnsRequest(
                split=request.split,
                spec=spec.model_copy(
                    update={"columns": {name: column for name, column in spec.columns.items() if name in batch}}
                ),
                features=tuple(batch),
            ),
        )
        for batch in batches(features, [rows.num_rows] * len(features), _VALUES)
    ]
    columns = [
        Transformation.from_json(json.loads(path.read_bytes()))
        for path in store.paths_of([result.columns for result in run_pieces(store, calls)], FILE)
    ]
    fitted = Transformation(
        tuple(column for some in columns for column in some.numeric),
        tuple(column for some in columns for column in some.categorical),
    )
    reference = store.publish(
        "transformations",
        request.model_name,
        {FILE: canonical_json(fitted.to_json())},
        derived_from={"training_set": training_set, "split": request.split},
        configuration=identity_of(request.spec),
        details={"rows": rows.num_rows, "width": fitted.width},
    )
    return FitResult(transformation=str(reference))


def _features(
    store: ArtifactStore, split: str, only: Sequence[str] | None = None
) -> tuple[str, tuple[list[str], list[str]]]:
    """The training set of a split, and its numeric and categorical features, of `only` these if given."""
    from gatehouse.data.splitting.parts import divided_set

    training_set = divided_set(store, split)
    details = store.manifest(training_set).details
    numeric, categorical = (
        [name for name in details[kind] if only is None or name in only] for kind in ("numeric", "categorical")
    )
    return training_set, (numeric, categorical)
