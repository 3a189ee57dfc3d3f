"""The KFP interface of the validate stage."""

from typing import NamedTuple

from kfp import dsl

from gatehouse.images import image


@dsl.component(base_image=image("gatehouse"), packages_to_install=[], install_kfp_package=False)
def validate(
    store: str,
    snapshot: str,
    contract: str,
    baseline: str,
    code: str,
    force: str,
    metrics: dsl.Output[dsl.Metrics],
    report: dsl.Output[dsl.HTML],
) -> NamedTuple("Outputs", [("validation", str), ("verdict", str), ("reasons", list)]):
    """Judge a snapshot against its contract; a breach is a verdict, and the report is written either way.

    Args:
        store: Address of the artifact store.
        snapshot: Reference of the snapshot.
        contract: Reference of the contract.
        baseline: Reference of an earlier validation to compare distributions with; empty for none.
        code: Digest of the stage's code.
        force: A nonce that runs the stage whatever the memo holds; empty for none.
        metrics: Numbers of rules judged, failed and warned for the UI.
        report: The report for the UI.
    """
    from gatehouse.components.artifacts.store import ArtifactStore
    from gatehouse.components.validation.stage import ValidateRequest, show
    from gatehouse.components.validation.stage import validate as run

    opened = ArtifactStore.open(store)
    request = ValidateRequest(snapshot=snapshot, contract=contract, baseline=baseline)
    result = run(request, opened, code=code, force=force)
    show(result, opened, metrics, report)
    return (result.validation, result.verdict, list(result.reasons))
