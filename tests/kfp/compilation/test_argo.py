"""Green means green: what Argo makes of the compiled pipelines where a task fails, by its rule for graphs."""

from pathlib import Path

import pytest
from kfp import compiler, dsl

from gatehouse.kfp.compilation.policy import breaches
from gatehouse.kfp.compilation.specification import Compiled, read_spec
from gatehouse.project.signatures import NAMES
from tests.stand_ins.argo import Workflow


@dsl.component
def step() -> str:
    return "done"


@dsl.component
def last(status: dsl.PipelineTaskFinalStatus) -> None:
    print(status.state)


def _compiled(folder: Path, *, after: bool) -> Compiled:
    """An exit handler with two tasks in a row; with a task after it where asked."""

    @dsl.pipeline(name="four-cases")
    def pipeline() -> None:
        with dsl.ExitHandler(last(), name="group") as group:
            first = step()
            step().after(first)
        if after:
            step().after(group)

    path = folder / "pipeline.yaml"
    compiler.Compiler().compile(pipeline, str(path))
    return read_spec(path)


@pytest.mark.parametrize(("after", "phase"), [(False, "Failed"), (True, "Succeeded")])
@pytest.mark.parametrize("failing", ["step", "step-2"])
def test_a_task_after_an_exit_handler_makes_a_failed_run_green(
    tmp_path: Path, after: bool, phase: str, failing: str
) -> None:
    """As seen on Kubeflow Pipelines 2.17 with Argo 4.0.5."""
    compiled = _compiled(tmp_path, after=after)
    assert Workflow(compiled, [f"exit-handler-1/{failing}"]).phase() == phase
    assert Workflow(compiled).phase() == "Succeeded"
    found = [breach.partition(":")[0] for breach in breaches(compiled) if "exit handler" in breach]
    assert bool(found) is after


@pytest.mark.parametrize("name", NAMES)
def test_a_pipeline_is_red_whichever_task_fails(compiled: Path, name: str) -> None:
    spec = read_spec(compiled / f"flights-{name}.yaml")
    stages = [task for task in spec.leaves if task.around]
    (ending,) = [task.path for task in spec.leaves if not task.around]
    workflow = Workflow(spec)
    assert workflow.phase() == "Succeeded"
    assert set(workflow.ran) == {task.path for task in spec.tasks}
    for task in stages:
        failed = Workflow(spec, [task.path])
        assert (failed.phase(), failed.ran[-1]) == ("Failed", ending), task.path
        terminated = Workflow(spec, terminated=task.path)
        assert terminated.phase() == "Failed", task.path
        assert terminated.ran[-1] == ending
    # Its failure leaves a green run without a record of its end, which counts as a failure.
    assert Workflow(spec, [ending]).phase() == "Succeeded"


def test_a_branch_that_is_skipped_takes_what_waits_for_it_along_and_the_run_is_green(tmp_path: Path) -> None:
    @dsl.pipeline(name="skipped")
    def pipeline(wanted: bool = False) -> None:
        with dsl.ExitHandler(last(), name="group"):
            first = step()
            with dsl.If(wanted == True, name="wanted"):  # noqa: E712 - KFP makes a condition of the comparison
                step()
            step().after(first)

    path = tmp_path / "pipeline.yaml"
    compiler.Compiler().compile(pipeline, str(path))
    spec = read_spec(path)
    (condition,) = [task.path for task in spec.tasks if "condition" in task.body.get("triggerPolicy", {})]
    assert Workflow(spec, skipped=[condition]).phase() == "Succeeded"
    assert Workflow(spec, ["exit-handler-1/step"], skipped=[condition]).phase() == "Failed"
