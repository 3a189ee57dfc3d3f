"""The components, for pipelines of Kubeflow Pipelines. This import is the public path to them, and needs kfp alone."""

from gatehouse.components.alert.component import alert
from gatehouse.components.calibrate.component import calibrate
from gatehouse.components.champion.component import champion
from gatehouse.components.check_leakage.component import check_leakage
from gatehouse.components.collect_log.component import collect_log
from gatehouse.components.compare_online.component import compare_online
from gatehouse.components.compute_features.component import compute_features
from gatehouse.components.configuration import config
from gatehouse.components.evaluate.component import evaluate
from gatehouse.components.fit_transformation.component import fit_transformation
from gatehouse.components.freshness.component import freshness
from gatehouse.components.integrate.component import integrate
from gatehouse.components.materialize.component import materialize
from gatehouse.components.monitor.component import monitor
from gatehouse.components.promote.component import promote
from gatehouse.components.reach.component import reach
from gatehouse.components.reconcile.component import reconcile
from gatehouse.components.recover.component import recover
from gatehouse.components.register.component import register
from gatehouse.components.report_end.component import report_end
from gatehouse.components.require.component import require
from gatehouse.components.resolve.component import resolve
from gatehouse.components.retrain.component import retrain
from gatehouse.components.retrieve_decisions.component import retrieve_decisions
from gatehouse.components.retrieve_training_set.component import retrieve_training_set
from gatehouse.components.score.component import score
from gatehouse.components.skew.component import skew
from gatehouse.components.snapshot.component import snapshot
from gatehouse.components.split.component import split
from gatehouse.components.take_keys.component import take_keys
from gatehouse.components.train.component import train
from gatehouse.components.tune.component import tune
from gatehouse.components.validate.component import validate

__all__ = [
    "alert",
    "calibrate",
    "champion",
    "check_leakage",
    "collect_log",
    "compare_online",
    "compute_features",
    "config",
    "evaluate",
    "fit_transformation",
    "freshness",
    "integrate",
    "materialize",
    "monitor",
    "promote",
    "reach",
    "reconcile",
    "recover",
    "register",
    "report_end",
    "require",
    "resolve",
    "retrain",
    "retrieve_decisions",
    "retrieve_training_set",
    "score",
    "skew",
    "snapshot",
    "split",
    "take_keys",
    "train",
    "tune",
    "validate",
]
