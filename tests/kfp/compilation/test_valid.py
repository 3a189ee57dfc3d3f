"""That KFP takes a compiled spec, that its bytes are always the same, and that it runs as the source does."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from kfp.kubernetes import kubernetes_executor_config_pb2 as pods
from kfp.pipeline_spec import pipeline_spec_pb2 as pipelines

from gatehouse.kfp.compilation.compiling import compile_pipeline
from gatehouse.kfp.compilation.specification import Compiled, read_spec
from gatehouse.kfp.local_run import LocalRun
from gatehouse.project.platforms import Platform
from gatehouse.project.project import load_project
from gatehouse.store.run import RUN_ID, events
from gatehouse.store.stage import declared_stages
from gatehouse.store.store import ArtifactStore
from tests.kfp.compilation.conftest import EXAMPLE
from tests.small_example import WINDOW

_COMPILE = """
import sys
from pathlib import Path
from gatehouse.kfp.compilation.compiling import compile_pipeline
from gatehouse.project.platforms import Platform
from gatehouse.project.project import load_project
example, folder = map(Path, sys.argv[1:3])
platform = Platform.model_validate_json(sys.argv[3])
compile_pipeline("training", load_project(example), folder, platform)
"""
_RUN = """
import json, sys
from kfp import components, local
local.init(runner=local.SubprocessRunner(use_venv=False), pipeline_root=sys.argv[2])
components.load_component_from_file(sys.argv[1])(**json.loads(sys.argv[3]))
"""


@pytest.fixture(params=["compiled", "released"])
def specs(request: pytest.FixtureRequest) -> list[Compiled]:
    folder: Path = request.getfixturevalue(request.param)
    return [read_spec(path) for path in sorted(folder.glob("*.yaml"))]


def test_a_spec_is_what_the_messages_of_kfp_say(specs: list[Compiled]) -> None:
    """The API server, the driver and the launcher parse these; a field that they do not know is refused."""
    for item in specs:
        parsed = json_format.ParseDict(item.spec, pipelines.PipelineSpec())
        assert parsed.pipeline_info.name == item.spec["pipelineInfo"]["name"]
        json_format.ParseDict({"platforms": {"kubernetes": item.platform}}, pipelines.PlatformSpec())
        executors = json_format.ParseDict(item.spec["deploymentSpec"], pipelines.PipelineDeploymentConfig()).executors
        assert set(executors) == set(item.platform["deploymentSpec"]["executors"])
        for pod in item.platform["deploymentSpec"]["executors"].values():
            assert json_format.ParseDict(pod, pods.KubernetesExecutorConfig()).active_deadline_seconds > 0


def test_every_reference_between_tasks_leads_somewhere(specs: list[Compiled]) -> None:
    """What the Argo compiler of KFP refuses: tasks, outputs and inputs of a group that do not exist."""
    for entry in specs:
        for task in entry.tasks:
            siblings = {other.name: other for other in entry.tasks if other.around == task.around}
            group = task.around[-1].component if task.around else entry.spec["root"]
            assert set(task.body.get("dependentTasks", [])) <= set(siblings)
            taken = task.component.get("inputDefinitions", {}).get("parameters", {})
            for name, arguments in task.body.get("inputs", {}).get("parameters", {}).items():
                assert name in taken
                if produced := arguments.get("taskOutputParameter"):
                    giver = siblings[produced["producerTask"]]
                    assert produced["outputParameterKey"] in giver.component["outputDefinitions"]["parameters"]
                    assert giver.name in task.body["dependentTasks"]
                if outer := arguments.get("componentInputParameter"):
                    assert outer in group["inputDefinitions"]["parameters"]
            artifacts = task.component.get("inputDefinitions", {}).get("artifacts", {})
            for name, source in task.body.get("inputs", {}).get("artifacts", {}).items():
                giver = siblings[source["taskOutputArtifact"]["producerTask"]]
                key = source["taskOutputArtifact"]["outputArtifactKey"]
                assert name in artifacts and key in giver.component["outputDefinitions"]["artifacts"]
                assert giver.name in task.body["dependentTasks"]
            required = {name for name, item in artifacts.items() if not item.get("isOptional")}
            assert required <= set(task.body.get("inputs", {}).get("artifacts", {})), task.path
            missing = {name for name, item in taken.items() if not item.get("isOptional")}
            assert missing <= set(task.body.get("inputs", {}).get("parameters", {})), task.path


def test_another_process_with_another_seed_of_hashes_writes_the_same_bytes(
    released: Path, platform: Platform, tmp_path: Path
) -> None:
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    command = [sys.executable, "-W", "ignore", "-c", _COMPILE, str(EXAMPLE), str(tmp_path), platform.model_dump_json()]
    subprocess.run(command, check=True, env=os.environ | {"PYTHONHASHSEED": seed})
    name = "flights-training.yaml"
    assert (tmp_path / name).read_bytes() == (released / name).read_bytes()


def _results(store: ArtifactStore, run: str) -> dict[str, dict[str, Any]]:
    """What each stage of a run gave that has a memo: references, and what was said of them."""
    memoised = {name for name, stage in declared_stages().items() if stage.declared.effects.memo}
    ended = [event for _, event in events(store, run) if event.event in ("finished", "hit")]
    return {event.stage: event.body["result"] for event in ended if event.stage in memoised}


@pytest.mark.timeout(600)
def test_the_compiled_file_run_by_kfp_gives_the_references_of_the_run_from_source(
    first: tuple[ArtifactStore, LocalRun], copy: ArtifactStore, project: Path, raw: Path, tmp_path: Path
) -> None:
    """One stage runs anew; the others find the result of the run from source by their keys, or run."""
    spec = compile_pipeline("training", load_project(project), tmp_path)
    arguments = {"store": copy.address, "source": str(raw), "window": WINDOW, "rerun": "split"}
    command = [sys.executable, "-W", "ignore", "-c", _RUN, str(spec), str(tmp_path / "kfp"), json.dumps(arguments)]
    ended = subprocess.run(
        command, cwd=project, env=os.environ | {RUN_ID: "compiled"}, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    before, after = _results(first[0], first[1].run), _results(copy, "compiled")
    assert {"split", "train", "evaluate"} <= set(before)
    assert after == before
    states = {event.stage: event.event for _, event in events(copy, "compiled") if event.event != "started"}
    assert (states["split"], states["train"], states["register"]) == ("finished", "hit", "finished")
