"""The KFP interface of the stage `reach`."""

from typing import NamedTuple

from kfp import dsl

from gatehouse.store.image import image_of


@dsl.component(base_image=image_of("reach"), packages_to_install=[], install_kfp_package=False)
def reach(
    store: str,
    version: str = "",
) -> NamedTuple("Outputs", [("checks", list)]):
    """Check from a pod that the store and MLflow answer, and that the image has the right version.

    Args:
        store: Address of the artifact store.
        version: The version of Gatehouse that the pipeline was compiled with; empty for any.

    Returns:
        checks: The result of each check, as one sentence.
    """
    from gatehouse.operations.diagnosing.stage import reach as run_reach
    from gatehouse.store.parameters import request_of, runner, values_of
    from gatehouse.store.store import ArtifactStore

    run = runner(ArtifactStore.open(store))
    request = request_of(run_reach, version=version)
    return values_of(run(run_reach, request))
