"""Measures a trial's model beyond its metrics, if a constraint or an objective needs it."""

import threading

from gatehouse.data.splitting.parts import read_part
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.performance import measure_latency
from gatehouse.training.scoring.predictor import Predictor
from gatehouse.tuning.data import TrialData
from gatehouse.tuning.spec import ExperimentSpec

_ROWS = 1024
_one_at_a_time = threading.Lock()


def measured(store: ArtifactStore, data: TrialData, model: str, spec: ExperimentSpec) -> dict[str, float]:
    """The measurements of a model that an experiment needs.

    Args:
        store: The artifact store.
        data: The data it was trained on; single rows of the validation part are scored.
        model: Reference of the model.
        spec: The experiment.

    Returns:
        The needed ones of `size_bytes` of the weights; `latency_ms`, the median time for one row in milliseconds,
        together with `latency_p99_ms`.
    """
    asked = {each.metric for each in spec.objective} | {each.measure for each in spec.constraints}
    found: dict[str, float] = {}
    if "size_bytes" in asked:
        files = store.manifest(model).files
        found["size_bytes"] = sum(entry.bytes for entry in files if entry.path.startswith("weights."))
    if "latency_ms" in asked:
        predictor = Predictor.load(store, model)
        part = read_part(store, data.training_set, data.split, "validation", predictor.task).thinned(_ROWS)
        with _one_at_a_time:  # A parallel measurement of this process would add to the time of a row.
            single = measure_latency(predictor.predict, part.table)["single_row_ms"]
        found |= {"latency_ms": single["p50"], "latency_p99_ms": single["p99"]}
    return found
