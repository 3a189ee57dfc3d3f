"""The monitor stage: has the data moved away from what the champion was trained on?"""

from datetime import datetime
from typing import TYPE_CHECKING

from gatehouse.components.artifacts.canonical import canonical_json
from gatehouse.components.artifacts.declaration import Resources
from gatehouse.components.artifacts.identity import identity_of
from gatehouse.components.artifacts.stage import StageModel, stage
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.monitoring.spec import MonitoringSpec
from gatehouse.errors import ConfigurationError, GatehouseError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from gatehouse.components.artifacts.manifest import Manifest
    from gatehouse.components.monitoring.decision import LabelLevel, Moved
    from gatehouse.components.monitoring.drift import Numbers
    from gatehouse.components.tasks.task import Task


class MonitorRequest(StageModel):
    """What a model was trained on (a training set and its split), and the newest rows (another training set).

    `since` (ISO 8601 with zone) is the time after which current rows count; empty for the last train row. With `model`,
    its scores are watched too.
    """

    reference: str
    split: str
    current: str
    since: str = ""
    model: str = ""
    spec: MonitoringSpec


class MonitorResult(StageModel):
    """The drift report, `retrain` or `keep` with the reasons, and the alarms that seasons hid."""

    drift: str
    decision: str
    reasons: tuple[str, ...]
    warnings: tuple[str, ...] = ()


class MissingColumnError(GatehouseError):
    """The current rows lack a column that the model was trained on."""

    permanent = True


@stage(
    "monitor",
    title="Compare with the champion's data",
    resources=Resources(cpu="2", memory="4G"),
    pages={"drift-reports": "gatehouse.components.monitoring.report:page"},
)
def monitor(request: MonitorRequest, store: ArtifactStore) -> MonitorResult:
    """Compare column by column; the artifact holds `drift.json`.

    Fewer current rows than `min_rows` are not judged: the decision is `keep`, and its reason says so.

    Raises:
        MissingColumnError: if a feature that the model was trained on is not among the current columns.
        ConfigurationError: if `since` is not a time with a zone, or the classes of labels are numbered otherwise.
    """
    from dataclasses import asdict

    from gatehouse.components.monitoring.decision import hidden_by_seasons, reasons_to_retrain
    from gatehouse.components.tasks.found import TASKS

    spec, manifest = request.spec, store.manifest(request.reference)
    trained, current = _rows(request, store, manifest)
    facts: dict[str, str | int] = {"train rows": trained.num_rows, "current rows": current.num_rows}
    moved: list[Moved] = []
    scores: Moved | None = None
    label: LabelLevel | None = None
    warnings: list[str] = []
    if current.num_rows < spec.min_rows:
        reasons = [f"rows: expected at least {spec.min_rows:,} current rows to judge, found {current.num_rows:,}"]
        decision = "keep"
    else:
        blocks = _blocks(trained, current, spec)
        facts["blocks of the train rows"] = int(blocks.max(initial=-1)) + 1
        moved = _features(spec, manifest, trained, current, blocks)
        scores = _scores(request, store, trained, current, blocks)
        task = TASKS[manifest.details.get("task", "binary")]
        column = manifest.details["label"]
        label = _label(spec, task, trained[column], current[column], blocks)
        reasons = reasons_to_retrain(spec, moved, scores, label)
        warnings = hidden_by_seasons(spec, [*moved, *([scores] if scores else [])], label)
        decision = "retrain" if reasons else "keep"
    body = {
        "columns": [asdict(each) for each in (*moved, *([scores] if scores else []))],
        "label_level": asdict(label) if label else None,
        "facts": facts,
        "decision": decision,
        "reasons": reasons,
    }
    drift = store.publish(
        "drift-reports",
        manifest.name,
        {"drift.json": canonical_json(body)},
        derived_from={"reference": request.reference, "split": request.split, "current": request.current}
        | ({"model": request.model} if request.model else {}),
        configuration=identity_of(spec) | {"since": request.since},
        details={"decision": decision},
    )
    return MonitorResult(drift=str(drift), decision=decision, reasons=tuple(reasons), warnings=tuple(warnings))


def _rows(request: MonitorRequest, store: ArtifactStore, manifest: "Manifest") -> "tuple[pa.Table, pa.Table]":
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    wanted = [
        *manifest.details["numeric"],
        *manifest.details["categorical"],
        manifest.details["label"],
        "decision_time",
    ]
    newest = store.manifest(request.current)
    present = {column.name for column in newest.columns}
    missing = [name for name in wanted if name not in present]
    if missing:
        raise MissingColumnError(
            f"{request.current} has no column {', '.join(missing)}, which the model was trained on in "
            f"{request.reference}. Retrieve the current rows through the feature service of the model."
        )
    classes, now = (list(each.details.get("classes", ())) for each in (manifest, newest))
    if classes != now[: len(classes)]:
        raise ConfigurationError(
            f"{request.current} numbers the classes {', '.join(now) or 'without names'}, expected those of "
            f"{request.reference} first: {', '.join(classes)}. Add new classes at the end of the LabelView's classes."
        )
    trained = pq.ParquetDataset(store.paths(request.reference)).read(columns=wanted)
    trained = trained.take(pq.read_table(store.path(request.split, "train.parquet"))["row"])
    current = pq.ParquetDataset(store.paths(request.current)).read(columns=wanted)
    if request.since:
        after = pa.scalar(_moment(request.since), current["decision_time"].type)
    else:
        after = pc.max(trained["decision_time"]).cast(current["decision_time"].type)
    return trained, current.filter(pc.greater(current["decision_time"], after))


def _moment(since: str) -> datetime:
    try:
        moment = datetime.fromisoformat(since)
    except ValueError:
        moment = datetime.min
    if moment.tzinfo is None:
        raise ConfigurationError(f"since: expected a time with its zone, e.g. 2013-11-01T00:00:00Z, found {since!r}.")
    return moment


def _blocks(trained: "pa.Table", current: "pa.Table", spec: MonitoringSpec) -> "Numbers":
    from gatehouse.components.monitoring.drift import blocks_of

    now = _moments(current)
    return blocks_of(_moments(trained), now.max() - now.min(), spec.min_rows)


def _moments(table: "pa.Table") -> "npt.NDArray[np.datetime64]":
    moments: npt.NDArray[np.datetime64] = table["decision_time"].to_numpy().astype("datetime64[us]")
    return moments


def _features(
    spec: MonitoringSpec, manifest: "Manifest", trained: "pa.Table", current: "pa.Table", blocks: "Numbers"
) -> "list[Moved]":
    from gatehouse.components.monitoring.decision import CATEGORICAL, NUMERIC, Moved, alarm_of, flat_alarm
    from gatehouse.components.monitoring.drift import CategoryBins, NumericBins, drift_of

    moved = []
    kinds = [(name, NUMERIC) for name in manifest.details["numeric"]]
    for name, kind in [*kinds, *((name, CATEGORICAL) for name in manifest.details["categorical"])]:
        numeric = kind == NUMERIC
        bins = (
            NumericBins.fit(trained[name], spec.bins) if numeric else CategoryBins.fit(trained[name], spec.categories)
        )
        drift = drift_of(bins, trained[name], blocks, current[name])
        alarm = alarm_of(spec, flat_alarm(spec, kind), drift.seasonal)
        moved.append(Moved(name, kind, drift.psi, drift.divergence, drift.seasonal, alarm, name in spec.ignore))
    return moved


def _scores(
    request: MonitorRequest, store: ArtifactStore, trained: "pa.Table", current: "pa.Table", blocks: "Numbers"
) -> "Moved | None":
    """How far what the model predicts has moved: its scores, or of several classes the class that it predicts."""
    if not request.model:
        return None
    import pyarrow as pa

    from gatehouse.components.monitoring.decision import SCORE, Moved, alarm_of
    from gatehouse.components.monitoring.drift import CategoryBins, NumericBins, drift_of
    from gatehouse.components.training.scoring.predictor import Predictor

    predictor = Predictor.load(store, request.model)
    read = [predictor.read(predictor.predict(table)) for table in (trained, current)]
    several = read[0].scores.ndim == 2
    then, now = (pa.chunked_array([each.form("classes") if several else each.scores]) for each in read)
    bins = CategoryBins.fit(then, request.spec.categories) if several else NumericBins.fit(then, request.spec.bins)
    drift = drift_of(bins, then, blocks, now)
    alarm = alarm_of(request.spec, request.spec.score_alarm, drift.seasonal)
    name = "class that the model predicts" if several else "score of the model"
    return Moved(name, SCORE, drift.psi, drift.divergence, drift.seasonal, alarm)


def _label(
    spec: MonitoringSpec, task: "Task", trained: "pa.ChunkedArray", current: "pa.ChunkedArray", blocks: "Numbers"
) -> "LabelLevel":
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    from gatehouse.components.monitoring.decision import LabelLevel, alarm_of
    from gatehouse.components.tasks.level import level_of

    level = level_of(task)
    then, now = (pc.cast(labels, pa.float64()).to_numpy() for labels in (trained, current))
    rows = level.by_row(then, then)
    flat = spec.label_alarm if level.is_share else spec.mean_label_alarm * float(rows.std())
    inside, mean = blocks >= 0, float(rows.mean())
    counts, sums = np.bincount(blocks[inside]), np.bincount(blocks[inside], weights=rows[inside])
    seasonal = round(float(np.abs(sums / counts - mean).max(initial=0.0)), 9)
    found = round(float(level.by_row(now, then).mean()), 9)
    alarm = alarm_of(spec, flat, seasonal)
    return LabelLevel(level.title, level.is_share, round(mean, 9), found, seasonal, round(flat, 9), alarm)
