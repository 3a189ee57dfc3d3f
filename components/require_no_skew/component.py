"""The KFP interface of the stage `require_no_skew`."""

from kfp import dsl

from gatehouse.store.image import image_of


@dsl.component(base_image=image_of("require_no_skew"), packages_to_install=[], install_kfp_package=False)
def require_no_skew(
    store: str,
    verdict: str,
    reasons: list = [],
    report: str = "",
) -> None:
    """End the run unless the online store gives what the offline store gives. Raises SkewError.

    Args:
        store: Address of the artifact store.
        verdict: The verdict of a stage.
        reasons: The reasons that the stage gave.
        report: Reference of the artifact that explains it.
    """
    from gatehouse.operations.requiring.stage import require_no_skew as run_require_no_skew
    from gatehouse.store.parameters import request_of, runner
    from gatehouse.store.store import ArtifactStore

    run = runner(ArtifactStore.open(store))
    request = request_of(run_require_no_skew, verdict=verdict, reasons=reasons, report=report)
    run(run_require_no_skew, request)
