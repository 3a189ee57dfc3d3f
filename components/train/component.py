"""The KFP interface of training: the search, the training with the best parameters, and the calibration."""

from typing import NamedTuple

from kfp import dsl

from gatehouse.components.interface import component


@component(
    "training",
    title="Train the candidate",
    cpu="2",
    memory="8G",
    minutes=510,
    configurations={
        "spec": "training",
        "transformation": "transformation",
        "search": "tuning",
        "calibration": "calibration",
    },
)
def train(
    split: dsl.Input[dsl.Artifact],
    model: dsl.Output[dsl.Model],
    experiment: dsl.Output[dsl.Artifact],
    metrics: dsl.Output[dsl.Metrics],
    report: dsl.Output[dsl.HTML],
    trials: dsl.Output[dsl.Markdown],
    spec: dict = {},
    spec_file: dsl.Input[dsl.Artifact] = None,
    transformation: dict = {},
    search: dict = {},
    refit: bool = False,
    calibration: dict = {},
    seed: int = -1,
    model_name: str = "model",
    store: str = "",
    tables: bool = False,
) -> NamedTuple("Outputs", [("best", dict), ("metrics_by_name", dict), ("threshold", float)]):
    """Fit the transformation, search hyperparameters where asked, train with the best ones, calibrate where asked.

    Args:
        split: The split of a training set; one whose verdict is fail is refused.
        spec: What to train, as a TrainSpec; of a search, all other settings.
        spec_file: The same as a file of YAML or JSON.
        transformation: How columns become numbers, as a TransformationSpec; it is fitted on train rows.
        search: What is searched and how, as an ExperimentSpec; empty for no search.
        refit: Train again on train and validation rows, for as many epochs as the first training found to be best.
        calibration: What is fitted on the validation part, as a CalibrationSpec; empty for no calibration.
        seed: Of search and training, in place of that of `spec`; negative for that.
        model_name: Name of the model.
        store: Address of the artifact store; empty for that of the split.
        tables: Whether to write the model's files for tasks that do not know Gatehouse, in place of a manifest.

    Returns:
        best: The settings that were trained with, as a TrainSpec.
        metrics_by_name: Validation metrics; none for a refit.
        threshold: The decision threshold of a calibration; 0.5 without one.
        model: The model.
        experiment: The search with all trials; nothing without a search.
        metrics: Validation metrics.
        report: The report of the search, else that of the training.
        trials: The best trials, or "no search".
    """
    import json

    from gatehouse.data.component_task import ComponentTask
    from gatehouse.operations.preparing_stage import require
    from gatehouse.store.parameters import as_parameter, configuration_of
    from gatehouse.tracking.projection import track_experiment, track_training
    from gatehouse.training.calibration_stage import calibrate
    from gatehouse.training.spec import operation_of, run_as, train_spec
    from gatehouse.training.stage import train as fit
    from gatehouse.training.transformation_stage import fit_transformation
    from gatehouse.tuning.report import write_markdown
    from gatehouse.tuning.stage import hourly_price, tune

    task = ComponentTask(store, split)
    task.run(require, **task.verdict("The split", split, "splits"))
    parts, searched, threshold = task.take("split", split, "splits"), "", 0.5
    fitted = task.run(fit_transformation, split=parts, spec=transformation, model_name=model_name).transformation
    rows = {"split": parts, "transformation": fitted, "model_name": model_name}
    body = configuration_of("spec", spec, spec_file, default={})
    training = train_spec(body | ({"seed": seed} if seed >= 0 else {}))
    if search:
        settings = {"base": training.model_dump(mode="json"), "spec": search, "seed": training.seed}
        tuned = task.run(tune, **rows, **settings, price=hourly_price(search))
        searched = tuned.experiment
        track_experiment(task.store, searched)
        training = run_as(json.loads(tuned.best), operation_of(training))
    write_markdown(task.store, searched, trials.path)
    trained = task.run(fit, **rows, spec=training.model_dump(mode="json"), refit=refit, live=True)
    track_training(task.store, trained.model)
    for name, value in trained.metrics.items():
        metrics.log_metric(f"validation_{name}", value)
    made = trained.model
    if calibration:
        calibrated = task.run(calibrate, model=made, spec=calibration)
        made, threshold = calibrated.model, calibrated.threshold
    task.give(model, made, tables=tables)
    task.give(experiment, searched)
    task.show(report, searched or trained.model)
    task.label(trained.model, metrics)
    task.label(searched or trained.model, trials)
    return (as_parameter(training.model_dump(mode="json", exclude_defaults=True)), dict(trained.metrics), threshold)
