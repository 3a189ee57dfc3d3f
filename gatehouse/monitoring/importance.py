"""Importance of each feature: how much worse the champion becomes when the feature's values are shuffled."""

from collections.abc import Mapping

import numpy as np

from gatehouse.data.splitting.parts import read_part
from gatehouse.evaluation.probing.probes import Feature, shuffled
from gatehouse.metrics.catalogue import metric_named
from gatehouse.metrics.judging import judging_of
from gatehouse.store.store import ArtifactStore
from gatehouse.training.scoring.predictor import Predictor

_ROWS, _REPEATS = 2000, 2


def probed_importance(store: ArtifactStore, robustness: str) -> dict[str, float]:
    """Permutation importance by feature, from the champion's probes at its gate."""
    features = store.read_json(robustness, "robustness.json")["features"]
    return {feature["name"]: float(feature["importance"]["mean"]) for feature in features}


def permuted_importance(
    store: ArtifactStore, predictor: Predictor, training_set: str, split: str, features: Mapping[str, str]
) -> dict[str, float]:
    """Permutation importance by feature on about 2,000 of the champion's test rows, for a champion without probes."""
    metric = metric_named(judging_of(predictor.task).objective)
    part = read_part(store, training_set, split, "test", predictor.task).thinned(_ROWS)
    value = metric.measure(part.labels, predictor.read(predictor.predict(part.table), part.groups))
    importance = {}
    for number, (name, kind) in enumerate(features.items()):
        random, losses = np.random.default_rng([number]), []
        for _ in range(_REPEATS):
            changed = predictor.predict(shuffled(Feature(name, kind), part.table, random))
            losses.append(metric.worse_by(metric.measure(part.labels, predictor.read(changed, part.groups)), value))
        importance[name] = float(np.mean(losses))
    return importance
