"""The training pipeline: from the source to a candidate that the gate has judged."""

from typing import Any

from kfp import dsl

from gatehouse.components.artifacts.canonical import canonical_json
from gatehouse.components.evaluation.component import evaluate
from gatehouse.components.evaluation.stage import evaluate as evaluate_stage
from gatehouse.components.features.component import check_leakage
from gatehouse.components.features.stage import check_leakage as check_leakage_stage
from gatehouse.components.launchers.choose import LAUNCH
from gatehouse.components.launchers.patience import stage_minutes
from gatehouse.components.launchers.spec import LocalLaunch
from gatehouse.components.registry.component import register, resolve
from gatehouse.components.splitting.component import split
from gatehouse.components.splitting.stage import split as split_stage
from gatehouse.components.tracking.cost import PRICES
from gatehouse.components.training.component import fit_transformation, train
from gatehouse.components.training.fitting import fit_transformation as fit_stage
from gatehouse.components.training.stage import train as train_stage
from gatehouse.components.tuning.component import tune
from gatehouse.components.tuning.stage import tune as tune_stage
from gatehouse.images import image
from gatehouse.pipelines.data import Data, Run, add_data_tasks, begin, configuration_slice
from gatehouse.pipelines.governance import Tasks
from gatehouse.pipelines.require import require_no_leakage
from gatehouse.project import Project


def training(project: Project, tasks: Tasks) -> Any:
    """Build the training pipeline of `project`; its tasks are collected in `tasks`."""
    file = project.file

    @dsl.pipeline(name=f"{project.name}-training", description=file.description or f"Train {file.model}.")
    def pipeline(
        store: str = file.store,
        source: str = "",
        window: str = "",
        seed: int = file.training.seed,
        force: str = "",
        backfill: str = "",
    ) -> None:
        """Train a candidate and judge it.

        Args:
            store: Address of the artifact store.
            source: Read the raw tables here instead of the project's source; empty for the project's.
            window: Only events of START/END (end exclusive), e.g. 2013-01-01/2013-03-01; empty for all.
            backfill: Why rows of the earlier snapshot may change, where they do; empty where they may not.
            seed: Seed of trials and weights.
            force: Stages to run whatever the memo holds, e.g. train,evaluate@2; empty for none.
        """
        run = begin(tasks, project, store, force)
        data = add_data_tasks(tasks, project, run, source, window, backfill)
        parts = _add_split_tasks(tasks, project, run, data)
        candidate = _add_candidate_tasks(tasks, project, run, data, parts, seed)
        _add_gate_tasks(tasks, project, run, data, parts, candidate)

    return pipeline


def _add_split_tasks(tasks: Tasks, project: Project, run: Run, data: Data) -> Any:
    """Leakage check, its requirement, and the split; returns the split."""
    checked = tasks.add(
        check_leakage(
            snapshot=data.snapshot,
            feature_tables=data.feature_tables,
            training_set=data.training_set,
            definitions=str(project.definitions.reference),
            alarm=project.file.features.leakage_alarm,
            **run.memoised(check_leakage_stage),
        ),
        "check_leakage",
        "Check for leakage",
    )
    verdict, reasons, report = (checked.outputs[name] for name in ("verdict", "reasons", "leakage"))
    clean = tasks.add(
        require_no_leakage(store=run.store, verdict=verdict, reasons=reasons, report=report),
        "require_no_leakage",
        "Require no leakage",
    )
    spec = configuration_slice(project.file.split)
    divided = split(training_set=data.training_set, spec=spec, **run.memoised(split_stage)).after(clean)
    return tasks.add(divided, "split", "Split").outputs["split"]


def _add_candidate_tasks(tasks: Tasks, project: Project, run: Run, data: Data, parts: Any, seed: Any) -> Any:
    """The fitted transformation, tuning, and training of its best trial on the full budget; returns the candidate."""
    file = project.file
    scheduling = 0.0 if isinstance(file.launch, LocalLaunch) else file.launch.scheduling_minutes
    minutes = stage_minutes(scheduling, file.training.timeout_minutes)
    fitted = tasks.add(
        fit_transformation(
            training_set=data.training_set,
            split=parts,
            spec=configuration_slice(file.transformation),
            model_name=file.model,
            **run.memoised(fit_stage),
        ),
        "fit_transformation",
        "Fit the transformation",
    )
    transformation = fitted.outputs["transformation"]
    tuned = tasks.add(
        tune(
            training_set=data.training_set,
            split=parts,
            transformation=transformation,
            base=configuration_slice(file.training),
            space=configuration_slice(file.tuning),
            model_name=file.model,
            seed=seed,
            **run.memoised(tune_stage),
        ),
        "tune",
        "Tune hyperparameters",
        file.tuning.trials * minutes,
    )
    trained = tasks.add(
        train(
            training_set=data.training_set,
            split=parts,
            transformation=transformation,
            spec=tuned.outputs["best"],
            model_name=file.model,
            **run.memoised(train_stage),
        ),
        "train",
        "Train the candidate",
        minutes,
    )
    if file.prices.per_hour:
        for task in (tuned, trained):
            task.set_env_variable(PRICES, canonical_json(file.prices.model_dump(mode="json")))
    if file.launch != LocalLaunch():
        # Not a parameter: where training runs is no part of a cache key.
        given = {"kind": file.launch.kind} | file.launch.model_dump(mode="json", exclude_defaults=True)
        if not isinstance(file.launch, LocalLaunch):
            given["image"] = file.launch.image or image("gatehouse")
        for task in (tuned, trained):
            task.set_env_variable(LAUNCH, canonical_json(given))
    return trained.outputs["model"]


def _add_gate_tasks(tasks: Tasks, project: Project, run: Run, data: Data, parts: Any, candidate: Any) -> None:
    """Champion, evaluation against it, and registration behind the gate."""
    name, policy = project.file.model, configuration_slice(project.policy)
    resolved = tasks.add(
        resolve(
            store=run.store,
            model_name=name,
            candidate=candidate,
            training_set=data.training_set,
            split=parts,
            policy=policy,
        ),
        "resolve",
        "Resolve the champion",
    )
    evaluated = tasks.add(
        evaluate(
            model=candidate,
            champion=resolved.outputs["champion"],
            training_set=data.training_set,
            split=parts,
            spec=configuration_slice(project.file.evaluation),
            policy=policy,
            **run.memoised(evaluate_stage),
        ),
        "evaluate",
        "Evaluate against the champion",
    )
    evaluation = evaluated.outputs["evaluation"]
    tasks.add(
        register(store=run.store, model_name=name, model=candidate, evaluation=evaluation, policy=policy),
        "register",
        "Register behind the gate",
    )
