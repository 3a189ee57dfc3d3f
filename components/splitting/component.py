"""The KFP interface of the split stage."""

from typing import NamedTuple

from kfp import dsl

from gatehouse.images import image


@dsl.component(base_image=image("gatehouse"), packages_to_install=[], install_kfp_package=False)
def split(store: str, training_set: str, spec: str, code: str, force: str) -> NamedTuple("Outputs", [("split", str)]):
    """Divide a training set into train, validation and test, by the strategy of its project.

    Args:
        store: Address of the artifact store.
        training_set: Reference of the training set.
        spec: The strategy, as canonical JSON of a SplitSpec.
        code: Digest of the stage's code.
        force: A nonce that runs the stage whatever the memo holds; empty for none.
    """
    from gatehouse.components.artifacts.store import ArtifactStore
    from gatehouse.components.splitting.spec import parse_split
    from gatehouse.components.splitting.stage import SplitRequest
    from gatehouse.components.splitting.stage import split as divide

    request = SplitRequest(training_set=training_set, spec=parse_split(spec))
    return (divide(request, ArtifactStore.open(store), code=code, force=force).split,)
