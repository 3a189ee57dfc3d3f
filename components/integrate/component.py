"""The KFP interface of a candidate's integration suite."""

from typing import NamedTuple

from kfp import dsl

from gatehouse.components.interface import component


@component(
    "training", title="Try the candidate", cpu="2", memory="4G", minutes=45, configurations={"spec": "integration"}
)
def integrate(
    model: dsl.Input[dsl.Model],
    integration: dsl.Output[dsl.Artifact],
    report: dsl.Output[dsl.HTML],
    spec: dict = {},
    tests: str = "",
    online: dsl.Input[dsl.Artifact] = None,
    store: str = "",
) -> NamedTuple("Outputs", [("verdict", str), ("reasons", list), ("warnings", list)]):
    """Ask a candidate in a process of its own, which has the store alone, as a server would; a failure is a verdict.

    Args:
        model: The candidate, of train.
        spec: What is asked, as an IntegrationSpec.
        tests: Reference of the project's test files; empty for none.
        online: The comparison of its online features with the offline ones, of compare_online; empty for none.
        store: Address of the artifact store; empty for that of the model.

    Returns:
        verdict: pass or fail.
        reasons: Why it is fail.
        warnings: What was not asked, and why.
        integration: The suite with each answer, which evaluate takes.
        report: The report.
    """
    from gatehouse.data.component_task import ComponentTask, verdict_facts
    from gatehouse.evaluation.integration.stage import integrate as ask

    task = ComponentTask(store, model, online)
    candidate = task.take("model", model, "models")
    asked = {"model": candidate, "split": task.origin(candidate, "split"), "tests": tests, "spec": spec}
    result = task.run(ask, **asked, online=task.take("online", online, "online-comparisons"))
    task.give(integration, result.integration, verdict_facts(result.verdict, result.reasons))
    task.show(report, result.integration)
    return (result.verdict, list(result.reasons), list(result.warnings))
