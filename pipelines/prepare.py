"""The first task of every pipeline: checks the published configuration and hands each forced stage its nonce."""

from typing import NamedTuple

from kfp import dsl

from gatehouse.images import image


@dsl.component(base_image=image("gatehouse"), packages_to_install=[], install_kfp_package=False)
def prepare(store: str, force: str, configs: list) -> NamedTuple(
    "Outputs",
    [
        ("snapshot", str),
        ("validate", str),
        ("compute_features", str),
        ("retrieve_training_set", str),
        ("check_leakage", str),
        ("split", str),
        ("fit_transformation", str),
        ("tune", str),
        ("train", str),
        ("evaluate", str),
    ],
):
    """Check that this store holds the configuration, and say which stages must run whatever the memo holds."""
    from gatehouse.components.artifacts.store import ArtifactStore
    from gatehouse.components.control.prepare import PrepareRequest
    from gatehouse.components.control.prepare import prepare as check

    nonces = check(PrepareRequest(force=force, configs=tuple(configs)), ArtifactStore.open(store)).nonces
    stages = ("snapshot", "validate", "compute_features", "retrieve_training_set", "check_leakage", "split")
    return tuple(nonces.get(name, "") for name in (*stages, "fit_transformation", "tune", "train", "evaluate"))
