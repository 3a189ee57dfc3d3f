"""The KFP interface of the first task of a run: it takes a snapshot of the source and judges it by its contract."""

from typing import NamedTuple

from kfp import dsl

from gatehouse.components.interface import component


@component("data", title="Snapshot the source", cpu="2", memory="4G", minutes=65)
def snapshot(
    store: str,
    source: dict,
    metrics: dsl.Output[dsl.Metrics],
    report: dsl.Output[dsl.HTML],
    contract: dict = {},
    contract_file: dsl.Input[dsl.Artifact] = None,
    location: str = "",
    window: str = "",
    backfill: str = "",
    baseline: str = "",
    snapshots: dict = {},
    configs: list = [],
    model_name: str = "",
    since: str = "",
    until: str = "",
    forcible: list = [],
    rerun: str = "",
) -> NamedTuple(
    "Outputs", [("snapshot", str), ("as_of", str), ("validation", str), ("verdict", str), ("reasons", list)]
):
    """Take an immutable snapshot of a source, and judge it by its contract.

    Args:
        store: Address of the artifact store.
        source: The source, as a SourceSpec.
        contract: The contract, or its reference under the key reference.
        contract_file: The contract as a file in YAML or JSON, in place of `contract`.
        location: Read the raw tables here instead; empty for the source's own place.
        window: Only events of START/END; empty for all.
        backfill: Why rows of the earlier snapshot may change; empty where they may not.
        baseline: Reference of an earlier validation to compare distributions with; empty for none.
        snapshots: References of other snapshots that foreign keys lead to, by the name that the contract gives them.
        configs: References of the configuration that the tasks of the run read.
        model_name: The model that the run trains, where monitoring may have ordered it; empty for none.
        since: Start of the span that the run is for (ISO 8601 with zone); empty for none.
        until: Its end; empty for none.
        forcible: The stages that `rerun` may name.
        rerun: Stages that run whatever the memo holds, as train,evaluate; empty for none.

    Returns:
        snapshot: Reference of the snapshot.
        as_of: The newest availability time in it.
        validation: Reference of the validation.
        verdict: pass or fail, by the contract.
        reasons: Why it is fail.
        metrics: Numbers of rules judged, failed and warned for the UI.
        report: The report of the validation for the UI.
    """
    from gatehouse.data.snapshot.stage import snapshot as take
    from gatehouse.data.validation.contract import publish_contract
    from gatehouse.data.validation.report import show
    from gatehouse.data.validation.stage import validate
    from gatehouse.operations.preparing_stage import prepare
    from gatehouse.store.parameters import given, open_store, request_of, runner

    opened = open_store(store)
    run = runner(opened, rerun)
    needs = {"rerun": rerun, "stages": forcible, "configs": configs, "model_name": model_name}
    run(prepare, request_of(prepare, **needs, since=since, until=until))
    read = {"location": location, "window": window, "backfill": backfill}
    taken = run(take, request_of(take, source=source, **read))
    beside = {"baseline": baseline, "snapshots": snapshots}
    promised = publish_contract(opened, given("contract", contract, contract_file))
    request = request_of(validate, snapshot=taken.snapshot, contract=promised, delivery=list(taken.delivery), **beside)
    judged = run(validate, request)
    show(judged, opened, metrics, report)
    return (taken.snapshot, taken.as_of, judged.validation, judged.verdict, list(judged.reasons))
