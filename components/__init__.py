"""The components, for pipelines of Kubeflow Pipelines. This import is the public path to them, and needs kfp alone."""

from gatehouse.components.alert.component import alert
from gatehouse.components.calibrate.component import calibrate
from gatehouse.components.check_leakage.component import check_leakage
from gatehouse.components.collect_log.component import collect_log
from gatehouse.components.compare_online.component import compare_online
from gatehouse.components.compute_features.component import compute_features
from gatehouse.components.configuration import config
from gatehouse.components.evaluate.component import evaluate
from gatehouse.components.fit_transformation.component import fit_transformation
from gatehouse.components.freshness.component import freshness
from gatehouse.components.integrate.component import integrate
from gatehouse.components.judge.component import judge
from gatehouse.components.launch.component import launch
from gatehouse.components.materialize.component import materialize
from gatehouse.components.monitor.component import monitor
from gatehouse.components.monitor_dataset.component import monitor_dataset
from gatehouse.components.promote.component import promote
from gatehouse.components.reach.component import reach
from gatehouse.components.reconcile.component import reconcile
from gatehouse.components.recover.component import recover
from gatehouse.components.register.component import register
from gatehouse.components.register_model.component import register_model
from gatehouse.components.report_end.component import report_end
from gatehouse.components.require.component import require
from gatehouse.components.resolve.component import resolve
from gatehouse.components.retrain.component import retrain
from gatehouse.components.retrieve_decisions.component import retrieve_decisions
from gatehouse.components.retrieve_features.component import retrieve_features
from gatehouse.components.retrieve_training_set.component import retrieve_training_set
from gatehouse.components.rollback.component import rollback
from gatehouse.components.score.component import score
from gatehouse.components.score_dataset.component import score_dataset
from gatehouse.components.search.component import search
from gatehouse.components.skew.component import skew
from gatehouse.components.snapshot.component import snapshot
from gatehouse.components.snapshot_dataset.component import snapshot_dataset
from gatehouse.components.split.component import split
from gatehouse.components.split_dataset.component import split_dataset
from gatehouse.components.take_keys.component import take_keys
from gatehouse.components.train.component import train
from gatehouse.components.tune.component import tune
from gatehouse.components.validate.component import validate
from gatehouse.components.validate_dataset.component import validate_dataset

__all__ = [
    "alert",
    "calibrate",
    "check_leakage",
    "collect_log",
    "compare_online",
    "compute_features",
    "config",
    "evaluate",
    "fit_transformation",
    "freshness",
    "integrate",
    "judge",
    "launch",
    "materialize",
    "monitor",
    "monitor_dataset",
    "promote",
    "reach",
    "reconcile",
    "recover",
    "register",
    "register_model",
    "report_end",
    "require",
    "resolve",
    "retrain",
    "retrieve_decisions",
    "retrieve_features",
    "retrieve_training_set",
    "rollback",
    "score",
    "score_dataset",
    "search",
    "skew",
    "snapshot",
    "snapshot_dataset",
    "split",
    "split_dataset",
    "take_keys",
    "train",
    "tune",
    "validate",
    "validate_dataset",
]
