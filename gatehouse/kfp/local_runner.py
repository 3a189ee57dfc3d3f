"""Prepares a pipeline for KFP's local runner, which tries refusals again, and skips what a named output decides."""

from typing import Any

from google.protobuf import json_format
from kfp.local import pipeline_orchestrator

from gatehouse.errors import ConfigurationError
from gatehouse.runtime.variables import ATTEMPTS

run_unprepared = pipeline_orchestrator.run_local_pipeline


def run_local_pipeline(pipeline_spec: Any, arguments: dict[str, Any]) -> Any:
    """Run a pipeline through KFP's local runner, which tries no task of Gatehouse again.

    A refusal would end in the same way, and a run that is repeated goes on where it failed.

    Raises ConfigurationError if a condition reads a named output. The runner of KFP 2.17 finds no value for it, skips
    the tasks, and succeeds.
    """
    spec = type(pipeline_spec)()
    spec.CopyFrom(pipeline_spec)
    executors = json_format.MessageToDict(spec.deployment_spec).get("executors", {})
    ours = {
        label
        for label, executor in executors.items()
        if any(variable["name"] == ATTEMPTS for variable in executor.get("container", {}).get("env", ()))
    }
    for component in (spec.root, *spec.components.values()):
        for name, task in component.dag.tasks.items():
            for channel, value in task.inputs.parameters.items():
                output = value.task_output_parameter
                is_read = f"'{channel}'" in task.trigger_policy.condition
                if is_read and output.output_parameter_key not in ("", "Output"):
                    raise ConfigurationError(
                        f"{name}: expected a condition on a component's only output, found one on "
                        f"{output.output_parameter_key!r} of {output.producer_task}: KFP's local runner skips it. Pass "
                        "the value through a component that returns it (docs/own-pipeline.md, Conditions)."
                    )
            if spec.components[task.component_ref.name].executor_label in ours:
                task.ClearField("retry_policy")
    return run_unprepared(pipeline_spec=spec, arguments=arguments)


def install() -> None:
    """Let KFP's local runner run the pipelines of this process with `run_local_pipeline`."""
    pipeline_orchestrator.run_local_pipeline = run_local_pipeline
