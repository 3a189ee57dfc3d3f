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
    from gatehouse.components.monitoring.decision import LabelRate, Moved
    from gatehouse.components.monitoring.drift import Numbers


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
        ConfigurationError: if `since` is not a time with a zone.
    """
    from dataclasses import asdict

    from gatehouse.components.monitoring.decision import hidden_by_seasons, reasons_to_retrain

    spec, manifest = request.spec, store.manifest(request.reference)
    trained, current = _rows(request, store, manifest)
    facts: dict[str, str | int] = {"train rows": trained.num_rows, "current rows": current.num_rows}
    moved: list[Moved] = []
    scores: Moved | None = None
    label: LabelRate | None = None
    warnings: list[str] = []
    if current.num_rows < spec.min_rows:
        reasons = [f"rows: expected at least {spec.min_rows:,} current rows to judge, found {current.num_rows:,}"]
        decision = "keep"
    else:
        blocks = _blocks(trained, current, spec)
        facts["blocks of the train rows"] = int(blocks.max(initial=-1)) + 1
        moved = _features(spec, manifest, trained, current, blocks)
        scores = _scores(request, store, trained, current, blocks)
        label = _label(spec, manifest.details["label"], trained, current, blocks)
        reasons = reasons_to_retrain(spec, moved, scores, label)
        warnings = hidden_by_seasons(spec, [*moved, *([scores] if scores else [])], label)
        decision = "retrain" if reasons else "keep"
    body = {
        "columns": [asdict(each) for each in (*moved, *([scores] if scores else []))],
        "label_rate": asdict(label) if label else None,
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
    present = {column.name for column in store.manifest(request.current).columns}
    missing = [name for name in wanted if name not in present]
    if missing:
        raise MissingColumnError(
            f"{request.current} has no column {', '.join(missing)}, which the model was trained on in "
            f"{request.reference}. Retrieve the current rows through the feature service of the model."
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
    if not request.model:
        return None
    import pyarrow as pa

    from gatehouse.components.monitoring.decision import SCORE, Moved, alarm_of
    from gatehouse.components.monitoring.drift import NumericBins, drift_of
    from gatehouse.components.training.scoring.predictor import Predictor

    predictor = Predictor.load(store, request.model)
    then, now = (pa.chunked_array([predictor.predict(table)]) for table in (trained, current))
    drift = drift_of(NumericBins.fit(then, request.spec.bins), then, blocks, now)
    alarm = alarm_of(request.spec, request.spec.score_alarm, drift.seasonal)
    return Moved("score of the model", SCORE, drift.psi, drift.divergence, drift.seasonal, alarm)


def _label(spec: MonitoringSpec, name: str, trained: "pa.Table", current: "pa.Table", blocks: "Numbers") -> "LabelRate":
    import numpy as np

    from gatehouse.components.monitoring.decision import LabelRate, alarm_of

    labels = trained[name].to_numpy().astype(np.int64)
    inside = blocks >= 0
    rows, ones = np.bincount(blocks[inside]), np.bincount(blocks[inside], weights=labels[inside])
    rate = float(labels.mean())
    seasonal = round(float(np.abs(ones / rows - rate).max(initial=0.0)), 9)
    now = float(current[name].to_numpy().astype(np.int64).mean())
    return LabelRate(round(rate, 9), round(now, 9), seasonal, alarm_of(spec, spec.label_alarm, seasonal))
