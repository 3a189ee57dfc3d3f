"""The KFP interface of the stage `probe`."""

from typing import NamedTuple

from gatehouse.components.interface import component


@component("training", title="Probe the robustness", caching=True, cpu="2", memory="4G")
def probe(
    store: str,
    model: str,
    training_set: str,
    split: str,
    spec: dict = {},
    rerun: str = "",
) -> NamedTuple("Outputs", [("robustness", str), ("summary", str)]):
    """Measure the objective on test rows with one feature changed at a time; it decides nothing.

    Args:
        store: Address of the artifact store.
        model: Reference of the model.
        training_set: Reference of the training set.
        split: Reference of its split.
        spec: How it is probed, as a ProbeSpec.
        rerun: Stages that run whatever the memo holds, as train,evaluate; empty for none.

    Returns:
        robustness: Reference of the probes.
        summary: The result in one line.
    """
    from gatehouse.evaluation.probing.stage import probe as run_probe
    from gatehouse.store.parameters import open_store, request_of, runner, values_of

    run = runner(open_store(store), rerun)
    request = request_of(run_probe, model=model, training_set=training_set, split=split, spec=spec)
    return values_of(run(run_probe, request))
