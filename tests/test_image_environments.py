"""Every task runs in the image that it is assigned to: in an environment of that image's locks and nothing else."""

import re
import subprocess
from importlib.metadata import requires
from pathlib import Path

import pytest
import yaml
from kfp import local
from kfp.local.status import Status
from kfp.local.subprocess_task_handler import SubprocessTaskHandler

from gatehouse.pipelines.catalog import build
from gatehouse.project.project import load_project
from gatehouse.project.signatures import NAMES
from gatehouse.runtime.images import TRAINING, TRAINING_GPU, image
from gatehouse.store.run import RUN_ID, events
from gatehouse.store.stage import declared_stages
from gatehouse.store.store import ArtifactStore
from tests.image_environments import make_environment
from tests.small_example import WINDOW, write_project

pytestmark = pytest.mark.timeout(900)
ELSEWHERE = dict.fromkeys(("deploy", "reach", "recover"), "of a cluster")
ELSEWHERE |= dict.fromkeys(("evaluate_scores", "launch", "search", "await_approval"), "of a user's own pipeline")
ELSEWHERE |= dict.fromkeys(("evaluate_live", "record_live"), "of a canary")
"""The stages that no pipeline here runs, each with what it is part of."""
_GPU = any(item.startswith("nvidia-") for item in requires("torch") or ())
"""Whether tests run with the CUDA build of torch, which is that of another image."""


@pytest.fixture(scope="module")
def environments(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """By the reference of each image, where the programs of its environment are."""
    folder = tmp_path_factory.mktemp("images")
    sources = {"control": "control", "data": "data", TRAINING: TRAINING_GPU if _GPU else TRAINING}
    return {image(name): make_environment(source, folder / name) for name, source in sources.items()}


def _project(folder: Path) -> Path:
    """The small example with every section that adds a task, and features that are fresh where it ends."""
    write_project(folder)
    sections = {"alerts": "always", "calibration": {"min_rows": 100}, "integration": {}}
    file, definitions = folder / "project.yaml", folder / "features" / "definitions.py"
    file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | sections))
    definitions.write_text(re.sub(r"ttl=\d+ \* HOUR", "ttl=2 * DAY", definitions.read_text()))
    return folder


def test_the_example_runs_through_kfps_executor_with_each_task_in_its_image(
    environments: dict[str, Path], raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, log = ArtifactStore.open(tmp_path / "store"), tmp_path / "log"

    def run_in_its_image(task: SubprocessTaskHandler) -> Status:
        arguments = {"PATH": f"{environments[task.image]}:/usr/bin:/bin", "HOME": str(tmp_path), RUN_ID: pipeline}
        with open(log, "ab") as out:
            ended = subprocess.run(
                task.full_command, env=arguments | task.env_vars, cwd=tmp_path, stdout=out, stderr=out, check=False
            )
        return Status.SUCCESS if ended.returncode == 0 else Status.FAILURE

    monkeypatch.setattr(SubprocessTaskHandler, "run", run_in_its_image)
    local.init(runner=local.SubprocessRunner(use_venv=False), pipeline_root=str(tmp_path / "kfp"), raise_on_error=False)
    loaded = load_project(_project(tmp_path / "project"))
    for config in loaded.configs():
        config.publish(store)
    ran: set[str] = set()
    for pipeline in NAMES:
        own = {"promotion": {"version": 1}, "rollout": {}}
        arguments = own.get(pipeline, {"source": str(raw), "window": WINDOW})
        build(pipeline, loaded).function(store=store.address, **arguments)
        result = [event for _, event in events(store, pipeline)]
        failed = {event.stage: event.body.get("message") for event in result if event.event == "failed"}
        assert result and failed == {}, f"{pipeline}: {failed}\n{log.read_text()[-9000:]}"
        ran |= {event.stage.rpartition(":")[2] for event in result if event.event in ("finished", "hit")}
    assert declared_stages().keys() - ran == ELSEWHERE.keys()
