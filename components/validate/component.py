"""The KFP interface of the validate stage."""

from typing import NamedTuple

from kfp import dsl

from gatehouse.components.interface import component


@component("data", title="Validate against the contract", caching=True, cpu="2", memory="4G")
def validate(
    store: str,
    snapshot: str,
    metrics: dsl.Output[dsl.Metrics],
    report: dsl.Output[dsl.HTML],
    contract: dict = {},
    contract_file: dsl.Input[dsl.Artifact] = None,
    baseline: str = "",
    snapshots: dict = {},
    delivery: list = [],
    rerun: str = "",
) -> NamedTuple("Outputs", [("validation", str), ("verdict", str), ("reasons", list)]):
    """Judge a snapshot against its contract; a breach is a verdict, and the report is written either way.

    Args:
        store: Address of the artifact store.
        snapshot: Reference of the snapshot.
        contract: The contract, or its reference under the key reference.
        contract_file: The contract as a file in YAML or JSON, in place of `contract`.
        baseline: Reference of an earlier validation to compare distributions with; empty for none.
        snapshots: References of other snapshots that foreign keys lead to, by the name that the contract gives them.
        delivery: What the guards said as the snapshot was taken.
        rerun: Stages that run whatever the memo holds, as train,evaluate; empty for none.

    Returns:
        validation: Reference of the validation.
        verdict: pass or fail.
        reasons: Why it is fail.
        metrics: Numbers of rules judged, failed and warned for the UI.
        report: The report for the UI.
    """
    from gatehouse.data.validation.contract import publish_contract
    from gatehouse.data.validation.report import show
    from gatehouse.data.validation.stage import validate as judge
    from gatehouse.store.parameters import given, open_store, request_of, runner

    opened = open_store(store)
    promised = publish_contract(opened, given("contract", contract, contract_file))
    about = {"snapshot": snapshot, "contract": promised, "baseline": baseline, "snapshots": snapshots}
    request = request_of(judge, **about, delivery=delivery)
    result = runner(opened, rerun)(judge, request)
    show(result, opened, metrics, report)
    return (result.validation, result.verdict, list(result.reasons))
