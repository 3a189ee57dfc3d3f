"""The process that runs a pipeline through KFP's local runner; `gatehouse run` starts and owns it.

Its output is the run's log. The terminal output comes from the run record, not from here. Slow imports happen after the
fork server was started, which imports for the tasks at the same time.
"""

import argparse
import importlib
import json
import os
import sys
import tempfile
import traceback
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gatehouse.errors import ConfigurationError, GatehouseError
from gatehouse.kfp.warm_tasks import start_importing, use_for_tasks
from gatehouse.runtime.importing import without
from gatehouse.runtime.process import OWNER, follow_owner, here, owner_env
from gatehouse.runtime.redaction import redacted
from gatehouse.store.atomic_file import disk_full
from gatehouse.store.run import LAST_STAGE, RUN_ID, events
from gatehouse.store.store import ArtifactStore

if TYPE_CHECKING:
    from gatehouse.pipelines.catalog import Pipeline

PLAN = "plan.json"
FAILURE = "failure.json"


def main() -> int:
    """Publish the project's configuration, build the pipeline and run it; 0 if every task succeeded."""
    parser = argparse.ArgumentParser(description="Run one pipeline through KFP's local runner.")
    parser.add_argument("--project", type=Path, required=True)
    parser.add_argument("--pipeline", required=True)
    parser.add_argument("--store", required=True)
    parser.add_argument("--arguments", default="{}", help="JSON object of pipeline parameters")
    parser.add_argument("--until", default="", help="the last stage that runs; default: all run")
    options = parser.parse_args()
    follow_owner()
    os.environ.update(owner_env())
    if own := os.environ.get("PYTHONPATH"):
        os.environ["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, own.split(os.pathsep)))
    os.chdir(options.project)  # Paths in a project are relative to its folder.
    store = ArtifactStore.open(options.store)
    try:
        _run(options.pipeline, store, json.loads(options.arguments), options.until)
    except Exception as raised:
        traceback.print_exc()
        error = disk_full(raised) or raised
        code, message = error.exit_code if isinstance(error, GatehouseError) else 1, redacted(str(error))
        failure = {"error": type(error).__name__, "message": message, "exit_code": code}
        failure |= {} if isinstance(error, GatehouseError) else {"unexpected": True}
        store.record(f"runs/{os.environ[RUN_ID]}/{FAILURE}", failure)
        # If a task failed, its own record has the cause, and this error only names the task.
        failed = [event for _, event in events(store, os.environ[RUN_ID]) if event.event == "failed"]
        causes = [f"stage {event.stage} failed: {event.body['message']}" for event in failed]
        print("", *(causes or [f"error: {message}"]), sep="\n", file=sys.stderr)
        return code
    return 0


def _run(pipeline_name: str, store: ArtifactStore, arguments: dict[str, object], until: str) -> None:
    start_importing()
    pipeline = _prepare(pipeline_name, store, until)
    from google.protobuf.json_format import MessageToDict

    from gatehouse.kfp_api.specs import check_parameters, parameters_of

    spec = MessageToDict(pipeline.function.pipeline_spec)
    arguments = ({"store": store.address} if "store" in parameters_of(spec) else {}) | arguments
    check_parameters(spec, arguments)
    from gatehouse.store.parameters import require_known
    from gatehouse.store.stage import forcible_stages

    require_known(str(arguments.get("rerun", "")), forcible_stages())
    with store.workspace() as directory:
        os.environ["TMPDIR"] = tempfile.tempdir = str(directory)
        from kfp import local
        from kfp.local import logging_utils

        from gatehouse.kfp import local_runner

        # The output is a file, where codes for colours hide the words.
        logging_utils.color_text = lambda text, color: text
        use_for_tasks()
        local_runner.install()
        local.init(runner=local.SubprocessRunner(use_venv=False), pipeline_root=str(directory / "kfp"))
        pipeline.function(**arguments)


def _prepare(pipeline_name: str, store: ArtifactStore, until: str) -> "Pipeline":
    """Load the project, publish its configuration, build the pipeline and record its tasks."""
    warnings.filterwarnings("ignore", category=FutureWarning)
    for category in (RuntimeWarning, UserWarning):  # Images and resources, which the local runner ignores.
        warnings.filterwarnings("ignore", category=category, module="kfp")
    # A local run uses neither KFP's API client nor Docker, whose imports are slow: KFP omits the one where it runs a
    # task, and the other if Docker is not installed.
    os.environ["_KFP_RUNTIME"] = "true"
    importlib.import_module("kfp")
    del os.environ["_KFP_RUNTIME"]
    with without("docker"):
        importlib.import_module("kfp.local.task_dispatcher")
    from gatehouse.metrics.judging import profile_of
    from gatehouse.pipelines.catalog import build
    from gatehouse.project.checking import check_project
    from gatehouse.tracking.provenance import PRICES
    from gatehouse.training.spec import task_of

    store.sweep()
    project = check_project(Path.cwd(), store)
    pipeline = build(pipeline_name, project)
    if until:
        pipeline = cut_after(until, pipeline)
    for config in project.configs():
        config.publish(store)
    plan = [{"task": name, "stage": stage, "title": title} for name, stage, title in pipeline.plan]
    prices = project.file.prices.model_dump(mode="json")
    os.environ.setdefault(PRICES, json.dumps(prices))
    profile = profile_of(task_of(project.file.training))
    objective = project.policy.champion.metric or profile.objective
    body: dict[str, Any] = {"pipeline": pipeline_name, "project": project.name, "tasks": plan, "objective": objective}
    body |= {"prices": prices, "host": here(), "process": os.environ[OWNER]}
    store.record(f"runs/{os.environ[RUN_ID]}/{PLAN}", body)
    return pipeline


def cut_after(stage: str, pipeline: "Pipeline") -> "Pipeline":
    """Remove the tasks after a stage, except the one that reports the end, and let the last task end after the stage.

    A stage that requires its verdict runs too. No task before the stage needs a later one, because tasks are planned in
    order. Raises ConfigurationError if the pipeline has no such stage.
    """
    from gatehouse.configuration.yaml_lines import nearest

    planned, ends = pipeline.plan[:-1], pipeline.plan[-1:]
    stages = [name for _, name, _ in planned]
    if stage not in stages:
        names = ", ".join(dict.fromkeys(stages))
        raise ConfigurationError(
            f"--until: expected a stage of this run ({names}), found {stage!r}{nearest(stage, stages)}."
        )
    last = len(stages) - stages[::-1].index(stage)
    last += last < len(stages) and stages[last].partition("_")[0] == "require"
    os.environ[LAST_STAGE] = stages[last - 1]
    for task in {task for task, _, _ in planned[last:]} - {task for task, _, _ in planned[:last]}:
        del pipeline.tasks[task]
    return replace(pipeline, plan=[*planned[:last], *ends])


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Shutting down an interpreter with so many modules takes as long as a task, and nothing is left to do.
    os._exit(code)
