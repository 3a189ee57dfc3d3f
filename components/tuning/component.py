"""The KFP interface of the tune stage."""

from typing import NamedTuple

from kfp import dsl

from gatehouse.components.artifacts.image import image_of


@dsl.component(base_image=image_of("tune"), packages_to_install=[], install_kfp_package=False)
def tune(
    store: str,
    training_set: str,
    split: str,
    transformation: str,
    base: str,
    spec: str,
    model_name: str,
    seed: int,
    code: str,
    force: str,
    report: dsl.Output[dsl.HTML],
    trials: dsl.Output[dsl.Markdown],
    resample_by: str = "",
) -> NamedTuple("Outputs", [("experiment", str), ("best", str), ("summary", str)]):
    """Search hyperparameters; every trial is a real training run.

    Args:
        store: Address of the artifact store.
        training_set: Reference of the training set.
        split: Reference of its split.
        transformation: Reference of the transformation fitted on its train part.
        base: All other settings, as canonical JSON of a TrainSpec.
        spec: What is searched and how, as canonical JSON of an ExperimentSpec.
        model_name: Name of the model.
        seed: Seed of sampler and trials.
        code: Digest of the stage's code.
        force: A nonce that runs the stage whatever the memo holds; empty for none.
        resample_by: Units that the bootstrap of the best score resamples, as in the evaluation.

    Returns:
        experiment: Reference of the experiment.
        best: The best settings, as canonical JSON of a TrainSpec.
        summary: The result in one line.
        report: The experiment's report for the UI.
        trials: The result and the best trials, for the UI.
    """
    import json
    import shutil

    from gatehouse.components.artifacts.store import ArtifactStore
    from gatehouse.components.reports.rendering import rendered
    from gatehouse.components.tracking.training import track_experiment
    from gatehouse.components.training.spec import train_spec
    from gatehouse.components.tuning.reports.summary import write_markdown
    from gatehouse.components.tuning.spec import ExperimentSpec
    from gatehouse.components.tuning.stage import TuneRequest
    from gatehouse.components.tuning.stage import tune as run

    opened = ArtifactStore.open(store)
    start, searched = train_spec(json.loads(base)), ExperimentSpec.model_validate_json(spec)
    data = {"training_set": training_set, "split": split, "transformation": transformation, "model_name": model_name}
    request = TuneRequest(**data, base=start, spec=searched, seed=seed, resample_by=resample_by)
    result = run(request.priced(), opened, code=code, force=force)
    track_experiment(opened, result.experiment)
    shutil.copyfile(rendered(opened, result.experiment), report.path)
    write_markdown(opened, result.experiment, trials.path)
    report.metadata["reference"] = trials.metadata["reference"] = opened.address_of(result.experiment)
    return (result.experiment, result.best, result.summary)
