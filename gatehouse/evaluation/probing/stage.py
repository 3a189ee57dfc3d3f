"""The probe stage: how far a model falls where its features are not what they were."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from gatehouse.errors import GatehouseError
from gatehouse.evaluation.probing.spec import ProbeSpec
from gatehouse.store.canonical import canonical_json
from gatehouse.store.identity import identity_of
from gatehouse.store.reference import Reference
from gatehouse.store.stage import StageModel, stage
from gatehouse.store.store import ArtifactStore

if TYPE_CHECKING:
    import pyarrow as pa

    from gatehouse.evaluation.probing.probes import Feature
    from gatehouse.training.scoring.predictor import Predictor

FILE = "robustness.json"
_DIGITS = 9


class ProbeRequest(StageModel):
    """A model, and the data whose test rows are changed."""

    model: str
    training_set: str
    split: str
    spec: ProbeSpec


class ProbeResult(StageModel):
    """The probes, and a summary."""

    robustness: str
    summary: str


@stage(
    "probe",
    title="Probe the robustness",
    pages={"robustness": "gatehouse.evaluation.probing.report:page"},
    section="probes",
)
def probe(request: ProbeRequest, store: ArtifactStore) -> ProbeResult:
    """Measure the objective on test rows with one feature changed at a time; it decides nothing.

    `robustness.json` holds the objective on unchanged rows, and for each feature:

    - if it is missing, unknown or out of range: the loss of the objective and the shift of the predictions, or the
      model's refusal;
    - its permutation importance: the loss of the objective if it is shuffled, as mean and spread over repeats.

    Raises:
        UnusablePartError: if the test part cannot be judged on.
        PredictionError: if the model gave NaN, or a number that is no probability.
    """
    import numpy as np

    from gatehouse.data.splitting.parts import read_part
    from gatehouse.evaluation.probing.probes import probes_of, shuffled
    from gatehouse.metrics.catalogue import metric_named
    from gatehouse.metrics.judging import profile_of
    from gatehouse.training.scoring.predictor import Predictor, require_usable

    predictor = Predictor.load(store, request.model)
    metric = metric_named(profile_of(predictor.task).objective)
    whole = read_part(store, request.training_set, request.split, "test", predictor.task)
    part = whole.thinned(request.spec.rows)
    predicted = predictor.predict(part.table)
    require_usable(predicted, predictor.task)
    value = metric.measure(part.labels, predictor.read(predicted, part.groups))

    def measured(table: "pa.Table") -> dict[str, Any]:
        try:
            changed = predictor.predict(table)
            require_usable(changed, predictor.task)
        except GatehouseError as error:
            return {"refused": type(error).__name__}
        worse = metric.worse_by(metric.measure(part.labels, predictor.read(changed, part.groups)), value)
        moved = float(np.mean(np.abs(changed - predicted)))
        return {"worse_by": round(worse, _DIGITS), "moved": round(moved, _DIGITS)}

    features: list[dict[str, Any]] = []
    for number, feature in enumerate(_features(request, store, predictor)):
        # Each feature has a stream of its own: another one more or less shuffles the others as before.
        draw = np.random.default_rng([request.spec.seed, number])
        falls = [measured(shuffled(feature, part.table, draw))["worse_by"] for _ in range(request.spec.repeats)]
        mean, spread = float(np.mean(falls)), float(np.std(falls, ddof=1))
        importance = {"mean": round(mean, _DIGITS), "spread": round(spread, _DIGITS)}
        changes = {name: measured(table) for name, table in probes_of(feature, part.table)}
        features.append({"name": feature.name, "kind": feature.kind, "importance": importance, "changes": changes})
    features.sort(key=lambda feature: (-feature["importance"]["mean"], feature["name"]))
    body = {"metric": metric.name, "value": round(value, _DIGITS), "rows": len(part.rows), "features": features}
    published = store.publish(
        "robustness",
        Reference.parse(request.model).name,
        {FILE: canonical_json(body)},
        derived_from={"model": request.model, "training_set": request.training_set, "split": request.split},
        configuration=identity_of(request.spec),
        details={"metric": metric.name, "rows": len(part.rows), "of": len(whole.rows)},
    )
    first = features[0]
    summary = f"{first['name']} matters most: {metric.name} worse by {first['importance']['mean']:.4f} where shuffled"
    return ProbeResult(robustness=str(published), summary=summary)


def _features(request: ProbeRequest, store: ArtifactStore, predictor: "Predictor") -> "Iterator[Feature]":
    """The model's features; of numbers with the range of the train part, which is read a column at a time."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    from gatehouse.evaluation.probing.probes import Feature
    from gatehouse.training.data.parts import read_part

    train = read_part(store, request.training_set, request.split, "train")
    for column in predictor.transformation.numeric:
        values = pc.cast(pc.drop_null(train[column.name]), pa.float64(), safe=False).to_numpy()
        values = values[np.isfinite(values)]
        low, high = (float(values.min()), float(values.max())) if len(values) else (np.nan, np.nan)
        yield Feature(column.name, "numeric", low, high)
    for group in predictor.transformation.categorical:
        yield Feature(group.name, "categorical")
