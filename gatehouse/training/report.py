"""The page of a model: how its training went, epoch by epoch, its settings and its inputs."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gatehouse.reports.charts import Series, line_chart
from gatehouse.reports.elements import table
from gatehouse.reports.format import number
from gatehouse.reports.page import Report, Verdict
from gatehouse.reports.row_charts import bar_chart
from gatehouse.store.canonical import canonical_json
from gatehouse.store.store import ArtifactStore

Json = Mapping[str, Any]

_TRAIN, _CALIBRATION = "train_", "calibration.json"
_MARKED = 30  # Most epochs that each have a dot.
_SHOWN = 20


def page(store: ArtifactStore, reference: str) -> str:
    """The page of a model, as HTML.

    Args:
        store: Where the artifact is.
        reference: Of the model.
    """
    manifest = store.manifest(reference)
    history, model = (store.read_json(reference, f"{name}.json") for name in ("history", "model"))
    best, inputs = manifest.details["best_epoch"], model["inputs"]
    settings = dict(_settings(manifest.configuration))
    verdict = _verdict(history, best, manifest.details.get("world_sizes"))
    drawn = Report(f"Model {manifest.name}", settings.get("model.architecture", ""), verdict)
    size = sum(file.bytes for file in manifest.files if file.path.startswith("weights"))
    drawn.tiles({"epochs": len(history), "best epoch": best, "inputs": len(inputs), "KB of weights": round(size / 1e3)})
    _add_training(drawn, history, best)
    if gains := model.get("importance"):
        bars = sorted(gains.items(), key=lambda one: (-one[1], one[0]))[:_SHOWN]
        drawn.section("Importance").figure(bar_chart(bars), "What the splits on each feature gained the loss.")
    if manifest.entry(_CALIBRATION) is not None:
        _add_calibration(drawn, store.read_json(reference, _CALIBRATION))
    drawn.section("Settings", "A setting that is not named has its default.").facts(settings)
    drawn.section("Inputs", count=f"{len(inputs):,}")
    drawn.folded(f"{len(inputs):,} inputs", table(["input", "type"], [list(one) for one in inputs.items()]))
    drawn.section("Made from").facts({name.replace("_", " "): made for name, made in manifest.derived_from.items()})
    drawn.section("Feature tables").facts(model["feature_tables"])
    return drawn.html()


def _verdict(history: Sequence[Json], best: int, world_sizes: Sequence[Any] | None) -> Verdict:
    loss, last = _loss(history[best]), history[-1]["epoch"]
    refit, warnings = loss not in history[best], []
    if best == last and not refit and len(history) > 1:
        warnings.append("The last epoch was the best: with more of them the model may get better.")
    if world_sizes:
        warnings.append("The number of processes changed during training: a rerun gives other bits.")
    text = (
        f"Trained on train and validation rows for {last + 1} epochs, which no row was left to measure."
        if refit
        else f"Epoch {best} was the best of 0 to {last}: validation {_title(loss)} {number(history[best][loss])}."
    )
    test = "test rows: the evaluation of this model measures them, and its gate decides"
    return Verdict("pass", text, warnings=tuple(warnings), unchecked=(test,), title="Trained")


def _add_training(drawn: Report, history: Sequence[Json], best: int) -> None:
    drawn.section("Training", f"The weights are those of epoch {best}.", f"{len(history):,}")
    loss, few = _loss(history[0]), len(history) <= _MARKED

    def line(title: str, key: str) -> Series:
        return Series(title, [(row["epoch"], row[key]) for row in history], marked=few)

    measured = {"validation": loss, "train": _TRAIN + loss}
    shown = {part: name for part, name in measured.items() if name in history[0]}
    losses = [line(part, name) for part, name in shown.items()]
    figures = [(line_chart(losses, "epoch", _title(loss)), f"{_title(loss)} by epoch: {' and '.join(shown)} rows.")]
    others = [name for name in history[0] if name not in ("epoch", loss, _TRAIN + loss)]
    figures += [
        (line_chart([line("validation", name)], "epoch", _title(name)), f"{_title(name)} of the validation rows.")
        for name in others
    ]
    drawn.figures(*figures)
    names = ["epoch", *shown.values(), *others]
    rows = [[row[name] for name in names] for row in history]
    headers = ["epoch", *(f"{part} {_title(loss)}" for part in shown), *map(_title, others)]
    drawn.folded("Every epoch", table(headers, rows, {best: "good"}, label="Every epoch"))


def _add_calibration(drawn: Report, fitted: Json) -> None:
    told = (
        f"Fitted on {fitted['rows']:,} validation rows, which therefore say nothing of how well it works: the "
        "evaluation looks at test rows."
    )
    drawn.section("Calibration", told)
    lines = [
        Series(when, [(point[0], point[1]) for point in fitted[when]["reliability"]], marked=when == "after")
        for when in ("before", "after")
    ]
    chart = line_chart([*lines, Series("perfect", [(0, 0), (1, 1)], True)], "predicted probability", "observed rate")
    drawn.figure(chart, "The rate that came true against the predicted one, in groups of equal size.")
    facts = {"method": fitted["method"]} | {name: _short(each) for name, each in fitted["parameters"].items()}
    facts |= {"threshold": number(fitted["threshold"]), "chosen by": canonical_json(fitted["rule"])}
    facts |= {f"log loss {when}": number(fitted[when]["log_loss"]) for when in ("before", "after")}
    drawn.facts(facts)


def _short(value: Any) -> str:
    return f"{len(value)} breakpoints" if isinstance(value, list) else number(value)


def _loss(row: Json) -> str:
    """The loss that was trained on, which is the one metric that the train rows have too."""
    return next(name for name in row if name.startswith(_TRAIN)).removeprefix(_TRAIN)


def _title(name: str) -> str:
    return name.replace("_", " ")


def _settings(body: Json, place: str = "") -> Iterator[tuple[str, str]]:
    """Settings by their dotted names, numbers as a person reads them."""
    for key, value in body.items():
        if isinstance(value, dict):
            yield from _settings(value, f"{place}{key}.")
        elif isinstance(value, float):
            yield f"{place}{key}", f"{value:.4g}"
        else:
            yield f"{place}{key}", value if isinstance(value, str) else canonical_json(value)
