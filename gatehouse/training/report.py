"""The page of a model: its training epoch by epoch, its settings and its inputs."""

from collections.abc import Iterator, Mapping
from typing import Any

from gatehouse.reports import contents
from gatehouse.reports.charts import Series
from gatehouse.reports.format import number
from gatehouse.reports.page import Verdict, render
from gatehouse.store.canonical import canonical_json
from gatehouse.store.store import ArtifactStore

_TRAIN, _CALIBRATION = "train_", "calibration.json"
_DOTTED = 30  # Epochs up to which each has a dot.
_SHOWN = 20


def page(store: ArtifactStore, reference: str) -> str:
    """The page of a model, as HTML."""
    manifest = store.manifest(reference)
    if manifest.details.get("external"):  # Something else trained it.
        return contents.page(store, reference)
    history, model = (store.read_json(reference, f"{name}.json") for name in ("history", "model"))
    best, settings = manifest.details["best_epoch"], dict(_settings(manifest.configuration))
    # The loss is the one metric that the train rows have too.
    loss = next(name for name in history[0] if name.startswith(_TRAIN)).removeprefix(_TRAIN)
    losses = {part: name for part, name in (("validation", loss), ("train", _TRAIN + loss)) if name in history[0]}
    metrics = [name for name in history[0] if name not in ("epoch", loss, _TRAIN + loss)]

    def lines(series: Mapping[str, str]) -> list[Series]:
        points = {part: [(row["epoch"], row[name]) for row in history] for part, name in series.items()}
        return [Series(part, line, dots=line if len(line) <= _DOTTED else ()) for part, line in points.items()]

    calibration = store.read_json(reference, _CALIBRATION) if manifest.entry(_CALIBRATION) else None
    last, refit = history[-1]["epoch"], loss not in history[best]
    text = (
        f"Trained on train and validation rows for {last + 1} epochs, so no row was left to measure it."
        if refit
        else f"Epoch {best} was the best of 0 to {last}: validation {loss.replace('_', ' ')} "
        f"{number(history[best][loss])}."
    )
    improving = best == last and not refit and len(history) > 1
    warnings = ["The last epoch was the best: the model may improve with more epochs."] if improving else []
    unchecked = ["test rows: the evaluation of this model measures them, and its gate decides"]
    verdict = Verdict("pass", text, warnings=warnings, unchecked=unchecked, title="Trained")
    gains = sorted((model.get("importance") or {}).items(), key=lambda gain: (-gain[1], gain[0]))
    return render(
        "model.html",
        f"Model {manifest.name}",
        settings.get("model.architecture", ""),
        verdict,
        history=history,
        best=best,
        loss=loss.replace("_", " "),
        losses=losses,
        loss_lines=lines(losses),
        metric_lines={name: lines({"validation": name}) for name in metrics},
        gains=gains[:_SHOWN],
        kilobytes=round(sum(file.bytes for file in manifest.files if file.path.startswith("weights")) / 1e3),
        calibration=calibration,
        rule=", ".join(f"{name} {value}" for name, value in calibration["rule"].items()) if calibration else "",
        settings=settings,
        model=model,
        derived_from=manifest.derived_from,
        restarts=[
            line for body in store.measurements(reference, "train") for line in body["place"].get("restarts", ())
        ],
    )


def _settings(body: Mapping[str, Any], place: str = "") -> Iterator[tuple[str, str]]:
    """Settings by their dotted names, with rounded numbers."""
    for key, value in body.items():
        if isinstance(value, dict):
            yield from _settings(value, f"{place}{key}.")
        else:
            text = f"{value:.4g}" if isinstance(value, float) else value
            yield f"{place}{key}", text if isinstance(text, str) else canonical_json(text)
