"""A local run and its driver: what it builds for this machine, and what is left when a signal stops it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gatehouse.errors import ConfigurationError
from gatehouse.kfp import local_run
from gatehouse.runtime.process import owner_env
from gatehouse.store.run import RUN_ID
from gatehouse.store.store import ArtifactStore
from tests.small_example import EXAMPLE

_PREPARED = """
import json, os, sys
def loaded(*names):
    return [name for name in names if name in sys.modules]
import gatehouse.cli.run
before = loaded("pydantic", "kfp")
from gatehouse.store.store import ArtifactStore
from gatehouse.kfp.driver import _prepare

store = ArtifactStore.open(sys.argv[1])
pipeline = _prepare("training", store, "")
tasks = {**pipeline.tasks, **pipeline.function.pipeline_spec.root.dag.tasks}
print(json.dumps({
    "before the driver starts": before,
    "client": loaded("kubernetes", "kfp.client", "docker"),
    "cluster": loaded("kfp.kubernetes", "gatehouse.project.platforms", "gatehouse.kfp.compilation"),
    "cached": [name for name, task in tasks.items() if task.caching_options.enable_cache],
    "retried": [name for name, task in tasks.items() if task.retry_policy.max_retry_count],
    "tasks": sorted(set(tasks) - {"exit-handler-1"}) == sorted({name for name, _, _ in pipeline.plan}),
}))
"""


def test_a_local_run_loads_no_client_of_a_cluster_and_retries_nothing(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _PREPARED, str(tmp_path / "store")],
        cwd=EXAMPLE,
        env=os.environ | owner_env() | {RUN_ID: "20130115-081500-3fa2"},
        capture_output=True,
        text=True,
        check=True,
    )
    message = json.loads(ended.stdout.splitlines()[-1])
    assert message == {
        "before the driver starts": [],
        "client": [],
        "cluster": [],
        "cached": [],  # Each task has a stage without memo, or one whose result may be provisional.
        "retried": [],
        "tasks": True,
    }


def test_parameters_of_other_types_and_names_are_refused_before_anything_runs(store: ArtifactStore) -> None:
    outcome = local_run.run_pipeline(EXAMPLE, "training", store, {"seed": 7.0, "sead": 7}, lambda _: None)
    assert outcome.exit_code == ConfigurationError.exit_code and outcome.failure
    message = outcome.failure["message"]
    assert "seed: expected a whole number, found 7.0" in message and "sead: " in message


def test_a_run_that_a_signal_stops_leaves_no_workspace(
    store: ArtifactStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = store.local_folder / "tmp"
    script = "exec 9>$0/work-1.lock; flock -x 9; mkdir -p $0/work-1/kfp; touch $0/ready; sleep 60"
    monkeypatch.setattr(local_run, "_command", lambda *_: ["bash", "-c", script, str(folder)])

    def stop_when_ready(_: object) -> None:
        if (folder / "ready").exists():
            (folder / "ready").unlink()
            os.kill(os.getpid(), signal.SIGINT)

    outcome = local_run.run_pipeline(tmp_path, "training", store, {}, stop_when_ready)
    assert outcome.exit_code == 128 + signal.SIGINT
    assert not list(folder.glob("work-*"))
