"""The calibrate stage: the same model with calibrated probabilities, and a threshold."""

from typing import Any

from gatehouse.errors import ConfigurationError
from gatehouse.store.canonical import canonical_json
from gatehouse.store.identity import identity_of
from gatehouse.store.stage import StageModel, stage
from gatehouse.store.store import ArtifactStore
from gatehouse.training.model_spec import CalibrationError, CalibrationSpec, learned_parts

_PART = "validation"
_BINS, _LEAST_OF_A_LABEL = 20, 10


class CalibrateRequest(StageModel):
    """A model as training published it."""

    model: str
    spec: CalibrationSpec


class CalibrateResult(StageModel):
    """The calibrated model, its threshold, and a summary."""

    model: str
    threshold: float
    summary: str


@stage(
    "calibrate",
    title="Calibrate the candidate",
    pages={"models": "gatehouse.training.report:page"},
    section="calibration",
)
def calibrate(request: CalibrateRequest, store: ArtifactStore) -> CalibrateResult:
    """Fit on the validation part, which is all that is read; the artifact is the model with `calibration.json`.

    The file holds method, parameters and threshold, the rule that chose it, and log loss and reliability curve of the
    validation rows before and after. The weights stay the model's, which the store keeps once.

    Raises:
        ConfigurationError: if the model is of a task without probabilities, is calibrated, or was trained on
            validation rows.
        CalibrationError: if the validation rows cannot decide.
    """
    import numpy as np

    from gatehouse.data.splitting.parts import read_part
    from gatehouse.metrics.classification import log_loss
    from gatehouse.metrics.curves import calibration
    from gatehouse.training import calibration as methods
    from gatehouse.training.calibration import FILE, Calibration
    from gatehouse.training.predictor import Predictor

    manifest, spec = store.manifest(request.model), request.spec
    predictor = Predictor.load(store, request.model)
    if predictor.calibration is not None:
        raise ConfigurationError(f"{request.model} is calibrated already: expected the model that training published.")
    if _PART in learned_parts(manifest.configuration):
        raise ConfigurationError(
            f"{request.model} was trained on the validation rows too: expected a model that has not seen them. Remove "
            "the calibration, or tuning.final_rows."
        )
    if problems := list(spec.problems(predictor.task)):
        raise ConfigurationError(f"calibration: {'; '.join(problems)}.")
    split = manifest.derived_from["split"]
    part = read_part(store, manifest.derived_from["training_set"], split, _PART, predictor.task)
    predicted = part.scored(predictor.predict, predictor.features)
    rows, where = len(part.rows), f"The validation part of {split}"
    if rows < spec.min_rows:
        raise CalibrationError(
            f"{where} has {rows:,} rows: expected at least calibration.min_rows, {spec.min_rows:,}. Split anew."
        )
    values, counts = np.unique(part.labels, return_counts=True)
    if predicted.ndim == 1 and counts.min() < _LEAST_OF_A_LABEL:
        raise CalibrationError(
            f"{where} has {counts.min()} rows with label {values[counts.argmin()]:g}: expected at least "
            f"{_LEAST_OF_A_LABEL} of either. Move the boundaries of the split."
        )
    if not np.isfinite(predicted).all():
        raise CalibrationError(f"{request.model} gave predictions that are not numbers. Train it again.")
    if (predicted == predicted[0]).all():
        raise CalibrationError(
            f"{request.model} gives the same prediction for all {rows:,} validation rows: expected several."
        )
    method = spec.resolved(predictor.task)
    fits = {"platt": methods.fit_platt, "isotonic": methods.fit_isotonic, "temperature": methods.fit_temperature}
    calibrator: Any = fits[method](predicted, part.labels) if method in fits else None
    corrected = predicted if calibrator is None else calibrator.apply(predicted)
    threshold = 0.5 if corrected.ndim > 1 else methods.choose_threshold(part.labels, corrected, spec.threshold)

    def described(read: Any) -> dict[str, Any]:
        # Rounded to digits that are the same on every processor.
        chances, right = read.form("probabilities"), part.labels
        if chances.ndim > 1:
            chances, right = chances.max(axis=1), (part.labels == read.form("classes")).astype(np.float64)
        points = np.round(calibration(right, chances, _BINS), 9).tolist()
        return {"log_loss": round(log_loss.measure(part.labels, read), 9), "reliability": points}

    predictor.calibration = Calibration(calibrator, threshold)
    before, after = described(predictor.task.read(predicted, None)), described(predictor.read(corrected))
    facts = {"rule": identity_of(spec.threshold), "rows": rows, "before": before, "after": after}
    files: dict[str, Any] = {entry.path: entry for entry in manifest.files}
    published = store.publish(
        "models",
        manifest.name,
        files | {FILE: canonical_json(predictor.calibration.to_json() | facts)},
        derived_from={**manifest.derived_from, "model": request.model},
        configuration={**manifest.configuration, "calibration": identity_of(spec)},
        details=manifest.details,
    )
    losses = f"{before['log_loss']:.4f} to {after['log_loss']:.4f}"
    summary = f"{method}: validation log loss {losses}, threshold {threshold:.4g}"
    return CalibrateResult(model=str(published), threshold=threshold, summary=summary)
