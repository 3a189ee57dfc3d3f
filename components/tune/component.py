"""The KFP interface of the stage `tune`."""

from typing import NamedTuple

from gatehouse.components.interface import component


@component("training", title="Tune hyperparameters", cpu="2", memory="8G", minutes=240)
def tune(
    store: str,
    split: str,
    transformation: str,
    base: dict,
    spec: dict,
    model_name: str,
    seed: int = 0,
    resample_by: str = "",
    rerun: str = "",
) -> NamedTuple(
    "Outputs", [("experiment", str), ("best", str), ("summary", str), ("ended", str), ("provisional_trials", int)]
):
    """Run the experiment; the artifact holds `trials.json`, and `experiment.json` with the search and its result.

    Args:
        store: Address of the artifact store.
        split: Reference of the split of the training set.
        transformation: Reference of the transformation fitted on its train part.
        base: All settings that are not searched.
        spec: The experiment.
        model_name: Name of the model.
        seed: Seed of sampler and trials.
        resample_by: Units that the bootstrap of the best score resamples, as in the evaluation.
        rerun: Stages that run whatever the memo holds, as train,evaluate; empty for none.

    Returns:
        experiment: Reference of the experiment.
        best: The best settings, as canonical JSON of a TrainSpec.
        summary: The result in one line.
        ended: Why the experiment ended.
        provisional_trials: Number of trials that a machine or a time limit ended; the next run tries them again.
    """
    from gatehouse.store.parameters import open_store, request_of, runner, values_of
    from gatehouse.tuning.stage import tune as run_tune

    run = runner(open_store(store), rerun)
    request = request_of(
        run_tune,
        split=split,
        transformation=transformation,
        base=base,
        spec=spec,
        model_name=model_name,
        seed=seed,
        resample_by=resample_by,
    )
    return values_of(run(run_tune, request))
