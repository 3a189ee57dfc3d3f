"""Trials that want more cores than there are are told of, by the place that has too few."""

import pytest

from gatehouse.launchers.spec import LocalLaunch, PyTorchJobLaunch
from gatehouse.training.spec import changed, train_spec
from gatehouse.tuning.cores import short_of_cores, short_of_cores_here
from gatehouse.tuning.spec import ExperimentSpec

ARCHITECTURE = {"name": "model.architecture", "type": "categorical", "choices": ["tabular_mlp", "xgboost"]}
BASE = changed(train_spec({}), {"parallelism.processes": 2, "parallelism.threads": 3})


@pytest.mark.parametrize(
    ("settings", "wanted"), [({}, 24), ({"parallelism.processes": 1}, 12), ({"parallelism.threads": 1}, 8)]
)
def test_local_trials_want_a_core_for_each_thread_of_all_that_run_at_once(
    settings: dict[str, int], wanted: int
) -> None:
    spec = ExperimentSpec.model_validate(
        {"parameters": [ARCHITECTURE], "parallel_trial_count": 4, "trial_settings": settings}
    )
    assert short_of_cores(spec, BASE, LocalLaunch(), wanted, "this machine") == ""
    told = short_of_cores(spec, BASE, LocalLaunch(), wanted - 1, "this machine")
    assert f"want {wanted} cores, and this machine has {wanted - 1}." in told
    assert "Lower tuning.parallel_trial_count or" in told


def test_a_pod_of_a_trial_on_a_cluster_has_its_own_cores() -> None:
    spec = ExperimentSpec.model_validate({"parameters": [ARCHITECTURE], "parallel_trial_count": 40})
    launch = PyTorchJobLaunch(kind="pytorchjob", nodes=2)
    assert short_of_cores(spec, BASE, launch, 3, "each pod") == ""
    told = short_of_cores(spec, BASE, launch, 2.5, "each pod")
    assert "want 3 cores, and each pod has 2.5." in told and "parallel_trial_count" not in told


def test_in_a_pod_the_pod_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = ExperimentSpec.model_validate({"parameters": [ARCHITECTURE], "parallel_trial_count": 400})
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert "and this machine has" in short_of_cores_here(spec, BASE)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert "and this pod has" in short_of_cores_here(spec, BASE)
