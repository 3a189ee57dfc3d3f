"""The calibrate stage: a model becomes the same model with probabilities that come true, and a threshold."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gatehouse.errors import ConfigurationError
from gatehouse.store.canonical import canonical_json
from gatehouse.store.identity import identity_of
from gatehouse.store.reference import Reference
from gatehouse.store.stage import Resources, StageModel, stage
from gatehouse.store.store import ArtifactStore
from gatehouse.training.calibration.errors import CalibrationError
from gatehouse.training.calibration.spec import CalibrationSpec
from gatehouse.training.learned import learned_parts

if TYPE_CHECKING:
    from gatehouse.data.splitting.parts import Part
    from gatehouse.metrics.catalogue.metric import Array, Predictions
    from gatehouse.training.calibration.spec import Method
    from gatehouse.training.scoring.calibration import Isotonic, Platt, Temperature

_PART = "validation"
_BINS, _LEAST_OF_A_LABEL = 20, 10


class CalibrateRequest(StageModel):
    """A model as training made it, and the data that it was trained on.

    Attributes:
        model: Reference of the model.
        training_set: Reference of its training set.
        split: Reference of its split.
        spec: What is fitted, as a CalibrationSpec.
    """

    model: str
    training_set: str
    split: str
    spec: CalibrationSpec


class CalibrateResult(StageModel):
    """The calibrated model, its threshold, and a summary."""

    model: str
    threshold: float
    summary: str


@stage(
    "calibrate",
    title="Calibrate the candidate",
    resources=Resources(cpu="2", memory="4G"),
    pages={"models": "gatehouse.training.report:page"},
    section="calibration",
)
def calibrate(request: CalibrateRequest, store: ArtifactStore) -> CalibrateResult:
    """Fit on the validation part, which is all that is read; the artifact is the model with `calibration.json`.

    The file holds method, parameters and threshold, the rule that chose it, and log loss and reliability curve of the
    validation rows before and after. The weights are those of the model, which the store keeps once.

    Raises:
        ConfigurationError: if the model is of another training set, split or task, is calibrated already, or was
            trained on validation rows.
        CalibrationError: if the validation rows cannot tell.
        UnusablePartError: if the validation part has no rows, or of one class only.
    """
    from gatehouse.data.splitting.parts import read_part
    from gatehouse.training.calibration.thresholds import choose_threshold
    from gatehouse.training.scoring.calibration import FILE, Calibration
    from gatehouse.training.scoring.predictor import Predictor

    manifest = store.manifest(request.model)
    _require_own_data(request, manifest.derived_from)
    predictor = Predictor.load(store, request.model)
    if predictor.calibration is not None:
        raise ConfigurationError(f"{request.model} is calibrated already: expected the model that training published.")
    if _PART in learned_parts(manifest.configuration):
        raise ConfigurationError(
            f"{request.model} was trained on the validation rows too, and predicts them better than others: "
            "expected a model that has not seen them. Remove the calibration, or tuning.final_rows."
        )
    if problems := list(request.spec.problems(predictor.task)):
        raise ConfigurationError(f"calibration: {'; '.join(problems)}.")
    part = read_part(store, request.training_set, request.split, _PART, predictor.task)
    predicted = predictor.predict(part.table)
    _require_usable(request, part, predicted)
    method = request.spec.resolved(predictor.task)
    calibrator = _fit(method, part, predicted)
    corrected = predicted if calibrator is None else calibrator.apply(predicted)
    rule = request.spec.threshold
    threshold = 0.5 if corrected.ndim > 1 else choose_threshold(part.labels, corrected, rule)
    predictor.calibration = Calibration(calibrator, threshold)
    told: dict[str, Any] = {
        "rule": identity_of(rule),
        "rows": len(part.rows),
        "before": _told(part, predictor.task.read(predicted, None)),
        "after": _told(part, predictor.read(corrected)),
    }
    files: dict[str, Any] = {entry.path: entry for entry in manifest.files}
    published = store.publish(
        "models",
        manifest.name,
        files | {FILE: canonical_json(predictor.calibration.to_json() | told)},
        derived_from={**manifest.derived_from, "model": request.model},
        configuration={**manifest.configuration, "calibration": identity_of(request.spec)},
        details=manifest.details,
    )
    before, after = (told[when]["log_loss"] for when in ("before", "after"))
    summary = f"{method}: validation log loss {before:.4f} to {after:.4f}, threshold {threshold:.4g}"
    return CalibrateResult(model=str(published), threshold=threshold, summary=summary)


def _require_own_data(request: CalibrateRequest, derived_from: Mapping[str, str]) -> None:
    """Of another split the validation rows may be rows that the model was trained on."""
    for role in ("training_set", "split"):
        given, own = str(Reference.parse(getattr(request, role))), derived_from.get(role, "")
        if given != own:
            raise ConfigurationError(
                f"{role}: expected {own or 'none'}, which {request.model} was trained on, found {given}."
            )


def _require_usable(request: CalibrateRequest, part: "Part", predicted: "Array") -> None:
    """Enough rows, of each label, and predictions that differ and are no NaN."""
    import numpy as np

    rows, where = len(part.rows), f"The validation part of {request.split}"
    if rows < request.spec.min_rows:
        raise CalibrationError(
            f"{where} has {rows:,} rows: expected at least calibration.min_rows, {request.spec.min_rows:,}. Move the "
            "boundaries of the split, or leave the calibration out."
        )
    labels, counts = np.unique(part.labels, return_counts=True)
    if predicted.ndim == 1 and counts.min() < _LEAST_OF_A_LABEL:
        raise CalibrationError(
            f"{where} has {counts.min()} rows with label {labels[counts.argmin()]:g}: expected at least "
            f"{_LEAST_OF_A_LABEL} of either. Move the boundaries of the split."
        )
    if not np.isfinite(predicted).all():
        raise CalibrationError(f"{request.model} gave predictions that are not numbers. Train it again.")
    if (predicted == predicted[0]).all():
        raise CalibrationError(
            f"{request.model} gives the same prediction for all {rows:,} validation rows: expected predictions that "
            "differ. There is nothing to calibrate; train a better model."
        )


def _fit(method: "Method", part: "Part", predicted: "Array") -> "Platt | Isotonic | Temperature | None":
    from gatehouse.training.calibration.isotonic import fit_isotonic
    from gatehouse.training.calibration.platt import fit_platt
    from gatehouse.training.calibration.temperature import fit_temperature

    if method == "none":
        return None
    fit: Any = {"platt": fit_platt, "isotonic": fit_isotonic, "temperature": fit_temperature}[method]
    fitted: Platt | Isotonic | Temperature = fit(predicted, part.labels)
    return fitted


def _told(part: "Part", read: "Predictions") -> dict[str, Any]:
    """Log loss and reliability curve of the validation rows, rounded to digits that are the same on every processor."""
    import numpy as np

    from gatehouse.metrics.curves.calibration import calibration
    from gatehouse.metrics.log_loss import log_loss

    chances, right = read.form("probabilities"), part.labels
    if chances.ndim > 1:
        chances, right = chances.max(axis=1), (part.labels == read.form("classes")).astype(np.float64)
    points = np.round(calibration(right, chances, _BINS), 9).tolist()
    return {"log_loss": round(log_loss.measure(part.labels, read), 9), "reliability": points}
