"""The KFP interface of the stage `integrate`."""

from typing import NamedTuple

from gatehouse.components.interface import component


@component("training", title="Try the candidate", cpu="2", memory="4G", minutes=45)
def integrate(
    store: str,
    model: str,
    split: str,
    spec: dict = {},
    tests: str = "",
    online: str = "",
    rerun: str = "",
) -> NamedTuple("Outputs", [("integration", str), ("verdict", str), ("reasons", list), ("warnings", list)]):
    """Ask the candidate in a process of its own, which has the store alone; a failure is a verdict, not an error.

    Args:
        store: Address of the artifact store.
        model: Reference of the candidate.
        split: Reference of the split of its training set.
        tests: Reference of the project's test files; empty for none.
        online: Reference of the comparison of its online features with the offline ones; empty for none.
        spec: What is asked, as an IntegrationSpec.
        rerun: Stages that run whatever the memo holds, as train,evaluate; empty for none.

    Returns:
        integration: Reference of the integration suite.
        verdict: pass, or why a person should look.
        reasons: Why the verdict is not pass.
        warnings: What a person should know, though the verdict is pass.
    """
    from gatehouse.evaluation.integration.stage import integrate as run_integrate
    from gatehouse.store.parameters import open_store, request_of, runner, values_of

    run = runner(open_store(store), rerun)
    request = request_of(run_integrate, model=model, split=split, tests=tests, online=online, spec=spec)
    return values_of(run(run_integrate, request))
