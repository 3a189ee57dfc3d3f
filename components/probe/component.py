"""The KFP interface of the stage `probe`."""

from typing import NamedTuple

from kfp import dsl

from gatehouse.store.image import image_of


@dsl.component(base_image=image_of("probe"), packages_to_install=[], install_kfp_package=False)
def probe(
    store: str,
    model: str,
    training_set: str,
    split: str,
    spec: dict,
    code: dict = {},
    rerun: str = "",
) -> NamedTuple("Outputs", [("robustness", str), ("summary", str)]):
    """Measure the objective on test rows with one feature changed at a time; it decides nothing.

    Args:
        store: Address of the artifact store.
        model: Reference of the model.
        training_set: Reference of the training set.
        split: Reference of its split.
        spec: How it is probed, as a ProbeSpec.
        code: Digest of the stage's code, by stage.
        rerun: Stages that run whatever the memo holds, as train,evaluate; empty for none.

    Returns:
        robustness: Reference of the probes.
        summary: The result in one line.
    """
    from gatehouse.evaluation.probing.stage import probe as run_probe
    from gatehouse.store.parameters import request_of, runner, values_of
    from gatehouse.store.store import ArtifactStore

    run = runner(ArtifactStore.open(store), code, rerun)
    request = request_of(run_probe, model=model, training_set=training_set, split=split, spec=spec)
    return values_of(run(run_probe, request))
