"""The KFP interface of the task that trains a candidate: the search, the training with what it found, calibration."""

from typing import NamedTuple

from kfp import dsl

from gatehouse.components.interface import component


@component("training", title="Train the candidate", cpu="2", memory="8G", minutes=510)
def train(
    store: str,
    split: str,
    transformation: str,
    spec: dict,
    model_name: str,
    candidate: dsl.Output[dsl.Model],
    metrics: dsl.Output[dsl.Metrics],
    report: dsl.Output[dsl.HTML],
    trials: dsl.Output[dsl.Markdown],
    search: dict = {},
    refit: bool = False,
    calibration: dict = {},
    seed: int = -1,
    rerun: str = "",
) -> NamedTuple("Outputs", [("model", str), ("experiment", str)]):
    """Search hyperparameters where asked, train a candidate with the best ones, and calibrate it where asked.

    Args:
        store: Address of the artifact store.
        split: Reference of the split of the training set.
        transformation: Reference of the transformation fitted on its train part.
        spec: What to train, as a TrainSpec; of a search, all other settings.
        model_name: Name of the model.
        search: What is searched and how, as an ExperimentSpec; empty for no search.
        refit: Train again on train and validation rows, for as many epochs as the first training found to be best.
        calibration: What is fitted on the validation part, as a CalibrationSpec; empty for no calibration.
        seed: Of search and training in place of that of `spec`; negative for that.
        rerun: Stages that run whatever the memo holds, as train,evaluate; empty for none.

    Returns:
        model: Reference of the model.
        experiment: Reference of the experiment; empty without a search.
        candidate: The model for the UI: its metadata holds the reference.
        metrics: Validation metrics for the UI; empty for a refit.
        report: The report of the experiment for the UI, else that of the training.
        trials: The best trials for the UI, or "no search".
    """
    import json
    import shutil

    from gatehouse.reports.contents import rendered
    from gatehouse.store.parameters import as_written, open_store, request_of, runner
    from gatehouse.tracking.training import track_experiment, track_training
    from gatehouse.training.calibration.stage import calibrate
    from gatehouse.training.spec import operation_of, run_as, train_spec
    from gatehouse.training.stage import train as fit
    from gatehouse.tuning.reports.page import write_markdown
    from gatehouse.tuning.stage import tune

    opened = open_store(store)
    run, experiment = runner(opened, rerun), ""
    rows = {"split": split, "transformation": transformation, "model_name": model_name}
    training = train_spec(as_written(spec) | ({"seed": seed} if seed >= 0 else {}))
    if search:
        settings = {"base": training.model_dump(mode="json"), "spec": search, "seed": training.seed}
        tuned = run(tune, request_of(tune, **rows, **settings).priced())
        experiment = tuned.experiment
        track_experiment(opened, experiment)
        training = run_as(json.loads(tuned.best), operation_of(training))
    write_markdown(opened, experiment, trials.path)
    request = request_of(fit, **rows, spec=training.model_dump(mode="json"), refit=refit)
    trained = run(fit, request.model_copy(update={"live": True}))
    track_training(opened, trained.model)
    shutil.copyfile(rendered(opened, experiment or trained.model), report.path)
    for name, value in trained.metrics.items():
        metrics.log_metric(f"validation_{name}", value)
    model = trained.model
    if calibration:
        model = run(calibrate, request_of(calibrate, model=model, spec=calibration)).model
    candidate.metadata["reference"] = opened.address_of(model)
    report.metadata["reference"] = trials.metadata["reference"] = opened.address_of(experiment or trained.model)
    return (model, experiment)
