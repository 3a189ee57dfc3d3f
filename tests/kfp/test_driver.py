"""The driver of a local run: what it builds for this machine, and what nobody waits for."""

import json
import os
import subprocess
import sys
from pathlib import Path

from gatehouse.runtime.process import owner_env
from gatehouse.store.run import RUN_ID
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
try:
    os.environ["GATEHOUSE_TUNING_STORAGE"] = "oracel://me:pa55word@db/studies"
    _prepare("training", store, "")
    refused = ""
except Exception as error:
    refused = str(error)
tasks = {**pipeline.tasks, **pipeline.function.pipeline_spec.root.dag.tasks}
print(json.dumps({
    "before the driver starts": before,
    "client": loaded("kubernetes", "kfp.client", "docker"),
    "cluster": loaded("kfp.kubernetes", "gatehouse.project.platforms", "gatehouse.kfp.compilation"),
    "cached": [name for name, task in tasks.items() if task.caching_options.enable_cache],
    "retried": [name for name, task in tasks.items() if task.HasField("retry_policy")],
    "refused": refused.split(", found ")[-1][:40],
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
        "refused": "oracel://db/studies: NoSuchModuleError: ",
        "tasks": True,
    }
