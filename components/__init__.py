"""The components, for pipelines of Kubeflow Pipelines. This import is the public path to them, and needs kfp alone.

A name that is imported as itself is exported, to type checkers too.
"""

from gatehouse.components.await_approval.component import await_approval as await_approval
from gatehouse.components.check_leakage.component import check_leakage as check_leakage
from gatehouse.components.compare_online.component import compare_online as compare_online
from gatehouse.components.compute_features.component import compute_features as compute_features
from gatehouse.components.configuration import config as config
from gatehouse.components.deploy.component import deploy as deploy
from gatehouse.components.diagnose.component import diagnose as diagnose
from gatehouse.components.evaluate.component import evaluate as evaluate
from gatehouse.components.evaluate_live.component import evaluate_live as evaluate_live
from gatehouse.components.integrate.component import integrate as integrate
from gatehouse.components.launch.component import launch as launch
from gatehouse.components.materialize.component import materialize as materialize
from gatehouse.components.monitor.component import monitor as monitor
from gatehouse.components.promote.component import promote as promote
from gatehouse.components.reconcile.component import reconcile as reconcile
from gatehouse.components.register.component import register as register
from gatehouse.components.report_end.component import report_end as report_end
from gatehouse.components.require.component import require as require
from gatehouse.components.resolve.component import resolve as resolve
from gatehouse.components.retrain.component import retrain as retrain
from gatehouse.components.retrieve_features.component import retrieve_features as retrieve_features
from gatehouse.components.roll_out.component import roll_out as roll_out
from gatehouse.components.score.component import score as score
from gatehouse.components.search.component import search as search
from gatehouse.components.snapshot.component import snapshot as snapshot
from gatehouse.components.split.component import split as split
from gatehouse.components.take_keys.component import take_keys as take_keys
from gatehouse.components.train.component import train as train
from gatehouse.components.validate.component import validate as validate

__all__ = [name for name, value in vars().items() if callable(value)]
