"""The KFP interface of the tasks that steer a run."""

import linecache
from collections.abc import Sequence
from typing import Any

from kfp import dsl

from gatehouse.images import image

_PREPARE = """
def prepare(store: str, force: str, stages: list, configs: list) -> NamedTuple("Outputs", {outputs}):
    \"\"\"Check that this store holds the configuration, and say which stages must run whatever the memo holds.

    Args:
        store: Address of the artifact store.
        force: Names of stages, with an optional nonce; empty for none.
        stages: Every stage that can be forced.
        configs: References of the configuration that the tasks of the run read.
    \"\"\"
    from gatehouse.components.artifacts.store import ArtifactStore
    from gatehouse.components.control.stage import PrepareRequest
    from gatehouse.components.control.stage import prepare as check

    request = PrepareRequest(force=force, stages=tuple(stages), configs=tuple(configs))
    nonces = check(request, ArtifactStore.open(store)).nonces
    return tuple(nonces.get(name, "") for name in stages)
"""


def prepare_component(stages: Sequence[str]) -> Any:
    """The first task of a pipeline, with one output a stage: the nonce of that stage alone.

    KFP copies the source of a component with its output types written out, and a task whose inputs did not change may
    come from KFP's cache. So each stage needs an output of its own, and the source is written for the stages there are.

    Args:
        stages: Every stage that can be forced, in the order of the outputs.
    """
    from typing import NamedTuple

    source = _PREPARE.format(outputs=[(name, str) for name in stages]).replace("<class 'str'>", "str")
    file = f"prepare-{len(stages)}.py"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    names: dict[str, Any] = {"NamedTuple": NamedTuple}
    exec(compile(source, file, "exec"), names)  # noqa: S102 - our own source, with names of our own stages
    options = {"base_image": image("gatehouse"), "packages_to_install": [], "install_kfp_package": False}
    return dsl.component(**options)(names["prepare"])


@dsl.component(base_image=image("gatehouse"), packages_to_install=[], install_kfp_package=False)
def require_contract(store: str, verdict: str, reasons: list, report: str) -> None:
    """End the run with the reasons where the snapshot breaks its contract."""
    from gatehouse.components.artifacts.store import ArtifactStore
    from gatehouse.components.control.stage import Requirement
    from gatehouse.components.control.stage import require_contract as require

    require(Requirement(verdict=verdict, reasons=tuple(reasons), report=report), ArtifactStore.open(store))


@dsl.component(base_image=image("gatehouse"), packages_to_install=[], install_kfp_package=False)
def require_no_leakage(store: str, verdict: str, reasons: list, report: str) -> None:
    """End the run with the reasons where the training set holds what was not known at decision time."""
    from gatehouse.components.artifacts.store import ArtifactStore
    from gatehouse.components.control.stage import Requirement
    from gatehouse.components.control.stage import require_no_leakage as require

    require(Requirement(verdict=verdict, reasons=tuple(reasons), report=report), ArtifactStore.open(store))


@dsl.component(base_image=image("gatehouse"), packages_to_install=[], install_kfp_package=False)
def require_no_skew(store: str, verdict: str, reasons: list, report: str) -> None:
    """End the run with the reasons where the online store gives other values than the offline store."""
    from gatehouse.components.artifacts.store import ArtifactStore
    from gatehouse.components.control.stage import Requirement
    from gatehouse.components.control.stage import require_no_skew as require

    require(Requirement(verdict=verdict, reasons=tuple(reasons), report=report), ArtifactStore.open(store))
