"""Every task runs in the image that it is assigned to: in an environment of that image's locks and nothing else."""

import subprocess
from importlib.metadata import requires
from pathlib import Path

import pytest
from kfp import local
from kfp.local.status import Status
from kfp.local.subprocess_task_handler import SubprocessTaskHandler

from gatehouse.components.artifacts.run import RUN_ID, events
from gatehouse.components.artifacts.stage import declared_stages
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.images import TRAINING, TRAINING_GPU, image
from gatehouse.pipelines.catalog import build
from gatehouse.project import load_project
from tests.image_environments import make_environment
from tests.small_example import WINDOW

pytestmark = pytest.mark.timeout(900)
_GPU = any(each.startswith("nvidia-") for each in requires("torch") or ())
"""Whether tests run with the CUDA build of torch, which is that of another image."""


@pytest.fixture(scope="module")
def environments(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """By the reference of each image, where the programs of its environment are."""
    folder = tmp_path_factory.mktemp("images")
    sources = {"control": "control", "data": "data", TRAINING: TRAINING_GPU if _GPU else TRAINING}
    return {image(name): make_environment(source, folder / name) for name, source in sources.items()}


def test_an_environment_has_what_its_locks_pin_alone(environments: dict[str, Path]) -> None:
    for name, held in (("control", False), ("data", True)):
        script = "import importlib.util as u, sys; print(u.find_spec('feast') is not None, *sys.path)"
        said = subprocess.check_output([environments[image(name)] / "python", "-I", "-c", script], text=True).split()
        assert said[0] == str(held)
        assert [path for path in said[1:] if "site-packages" in path] == [
            str(next(environments[image(name)].parent.glob("lib/*/site-packages")))
        ]


def test_the_example_runs_through_kfps_executor_with_each_task_in_its_image(
    environments: dict[str, Path], project: Path, raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ArtifactStore.open(tmp_path / "store")
    log = tmp_path / "log"

    def run_in_its_image(task: SubprocessTaskHandler) -> Status:
        programs = environments[task.image]
        given = {"PATH": f"{programs}:/usr/bin:/bin", "HOME": str(tmp_path), RUN_ID: "run"} | task.env_vars
        with open(log, "ab") as out:
            ended = subprocess.run(task.full_command, env=given, cwd=tmp_path, stdout=out, stderr=out, check=False)
        return Status.SUCCESS if ended.returncode == 0 else Status.FAILURE

    monkeypatch.setattr(SubprocessTaskHandler, "run", run_in_its_image)
    monkeypatch.setenv(RUN_ID, "run")
    loaded = load_project(project)
    for config in loaded.configs():
        config.publish(store)
    local.init(runner=local.SubprocessRunner(use_venv=False), pipeline_root=str(tmp_path / "kfp"))
    for name in ("training",):
        build(name, loaded).function(store=store.address, source=str(raw), window=WINDOW)
        ended = {event.stage: event for _, event in events(store, "run") if event.event != "started"}
        failed = {stage: event.body.get("message") for stage, event in ended.items() if event.event == "failed"}
        assert failed == {}, f"{failed}\n{log.read_text()[-3000:]}"
    print(sorted(declared_stages().keys() - ended.keys()))
