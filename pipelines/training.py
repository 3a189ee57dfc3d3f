"""The training pipeline: from the source to a candidate that the gate has judged."""

from typing import Any

from kfp import dsl

from gatehouse.data.splitting.stage import split
from gatehouse.data.validation.contract import CONTRACT_FILE, published_contract
from gatehouse.evaluation.integration.stage import integrate
from gatehouse.evaluation.spec import EvaluationSpec
from gatehouse.evaluation.stage import evaluate
from gatehouse.launchers.spec import LocalLaunch
from gatehouse.launchers.timeouts import stage_minutes
from gatehouse.metrics.judging import profile_of
from gatehouse.online.serving.stage import compare_online
from gatehouse.operations.preparing_stage import require_no_leakage
from gatehouse.pipelines.data import Data, add_data_tasks
from gatehouse.pipelines.tasks import Tasks
from gatehouse.project.project import Project
from gatehouse.registry.stage import register, resolve
from gatehouse.runtime.variables import ONLINE_STORE
from gatehouse.store.canonical import canonical_json
from gatehouse.store.parameters import BACKFILL, RERUN, SOURCE, WINDOW, parameter_of
from gatehouse.tracking.provenance import PRICES
from gatehouse.training.calibration.stage import calibrate
from gatehouse.training.spec import task_of
from gatehouse.training.stage import train
from gatehouse.training.transformation.stage import fit_transformation
from gatehouse.tuning.stage import tune


def training(project: Project, tasks: Tasks) -> Any:
    """Build the training pipeline of `project`; its tasks are collected in `tasks`."""
    file = project.file

    @dsl.pipeline(name=f"{project.name}-training", description=file.description or f"Train {file.model}.")
    def pipeline(
        store: str = project.store,
        source: str = SOURCE,
        window: str = WINDOW,
        seed: int = file.training.seed,
        rerun: str = RERUN,
        backfill: str = BACKFILL,
    ) -> None:
        """Train a candidate and judge it.

        Args:
            store: Address of the artifact store.
            source: Read the raw tables here instead of the project's source; empty for the project's.
            window: Only events of START/END (end exclusive), e.g. 2013-01-01/2013-03-01; empty for all.
            seed: Seed of trials and weights.
            rerun: Stages to run whatever the memo holds, e.g. train,evaluate@2; empty for none.
            backfill: Why rows of the earlier snapshot may change, where they do; empty where they may not.
        """
        with tasks.begin(store, rerun):
            alarm = file.features.leakage_alarm or profile_of(task_of(file.training)).feature_alarm
            leakage = {"alarm": alarm, "unchecked": dict(file.features.unchecked)}
            data = add_data_tasks(tasks, source, window, backfill, leakage=leakage)
            divided = tasks.add(
                split,
                require_no_leakage,
                split,
                fit_transformation,
                title="Split",
                training_set=data.training_set,
                spec=parameter_of(file.split),
                transformation=parameter_of(file.transformation),
                model_name=file.model,
                **{name: getattr(data, name) for name in ("verdict", "reasons", "leakage")},
            )
            parts = divided.outputs["split"]
            candidate = _add_candidate_task(tasks, parts, divided.outputs["transformation"], seed)
            checks = {
                "split_checks": divided.outputs["split_checks"],
                "validation": data.validation,
                "leakage": data.leakage,
                "integration": _add_suite(tasks, data, parts, candidate),
            }
            _add_gate_tasks(tasks, data, parts, candidate, checks)

    return pipeline


def _add_candidate_task(tasks: Tasks, parts: Any, transformation: Any, seed: Any) -> Any:
    """The search where wanted, training on the full budget, and calibration where wanted; returns the candidate."""
    file = tasks.project.file
    scheduling = 0.0 if isinstance(file.launch, LocalLaunch) else file.launch.scheduling_minutes
    minutes = stage_minutes(scheduling, file.training.operation.timeout_minutes)
    trainings = 1 + (file.tuning.refits + file.tuning.max_trial_count if file.tuning else 0)
    trained = tasks.add(
        train,
        *([tune] if file.tuning else []),
        train,
        *([calibrate] if file.calibration else []),
        title="Search and train" if file.tuning else "Train",
        minutes=trainings * minutes,
        split=parts,
        transformation=transformation,
        spec=parameter_of(file.training),
        search=parameter_of(file.tuning) if file.tuning else {},
        refit=bool(file.tuning and file.tuning.refits),
        calibration=parameter_of(file.calibration) if file.calibration else {},
        model_name=file.model,
        seed=seed,
    )
    if file.prices.per_hour:
        trained.set_env_variable(PRICES, canonical_json(file.prices.model_dump(mode="json")))
    tasks.say_launch(trained)
    return trained.outputs["model"]


def _add_suite(tasks: Tasks, data: Data, parts: Any, candidate: Any) -> Any:
    """The candidate's integration suite, where the project has one; returns its artifact, else nothing."""
    spec, tests = tasks.project.file.integration, tasks.project.tests
    if spec is None:
        return ""
    compared = tasks.add(compare_online, training_set=data.training_set, max_skew=tasks.project.file.features.max_skew)
    tasks.entrust(compared, "online-store", ONLINE_STORE)
    tried = tasks.add(
        integrate,
        model=candidate,
        training_set=data.training_set,
        split=parts,
        tests=str(tests.reference) if tests else "",
        online=compared.outputs["comparison"],
        spec=parameter_of(spec),
    )
    return tried.outputs["integration"]


def _add_gate_tasks(tasks: Tasks, data: Data, parts: Any, candidate: Any, checks: dict[str, Any]) -> None:
    """Evaluation against the champion, and registration behind the gate."""
    name, policy = tasks.project.file.model, parameter_of(tasks.project.policy)
    # Fairness is measured by the columns that the contract calls protected too.
    contract = published_contract(tasks.project.contract.files[CONTRACT_FILE].decode())
    spec = tasks.project.file.evaluation
    spec = EvaluationSpec(**{**dict(spec), "protected": (*spec.protected, *contract.protected())})
    evaluated = tasks.add(
        evaluate,
        resolve,
        evaluate,
        title=evaluate.declared.title,
        model=candidate,
        model_name=name,
        training_set=data.training_set,
        split=parts,
        **checks,
        spec=parameter_of(spec),
        policy=policy,
    )
    evaluation = evaluated.outputs["evaluation"]
    tasks.add(register, model_name=name, model=candidate, evaluation=evaluation)
