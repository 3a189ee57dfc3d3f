"""The one-line tasks that end a run where a verdict says no."""

from kfp import dsl

from gatehouse.images import image


@dsl.component(base_image=image("gatehouse"), packages_to_install=[], install_kfp_package=False)
def require_contract(store: str, verdict: str, reasons: list, report: str) -> None:
    """End the run with the reasons where the snapshot breaks its contract."""
    from gatehouse.components.artifacts.store import ArtifactStore
    from gatehouse.components.control.require import Requirement
    from gatehouse.components.control.require import require_contract as require

    require(Requirement(verdict=verdict, reasons=tuple(reasons), report=report), ArtifactStore.open(store))


@dsl.component(base_image=image("gatehouse"), packages_to_install=[], install_kfp_package=False)
def require_no_leakage(store: str, verdict: str, reasons: list, report: str) -> None:
    """End the run with the reasons where the training set holds what was not known at decision time."""
    from gatehouse.components.artifacts.store import ArtifactStore
    from gatehouse.components.control.require import Requirement
    from gatehouse.components.control.require import require_no_leakage as require

    require(Requirement(verdict=verdict, reasons=tuple(reasons), report=report), ArtifactStore.open(store))


@dsl.component(base_image=image("gatehouse"), packages_to_install=[], install_kfp_package=False)
def require_no_skew(store: str, verdict: str, reasons: list, report: str) -> None:
    """End the run with the reasons where the online store gives other values than the offline store."""
    from gatehouse.components.artifacts.store import ArtifactStore
    from gatehouse.components.control.require import Requirement
    from gatehouse.components.control.require import require_no_skew as require

    require(Requirement(verdict=verdict, reasons=tuple(reasons), report=report), ArtifactStore.open(store))
