"""The training pipeline: from the source to a candidate that the gate has judged."""

from typing import Any

from kfp import dsl
from kfp.dsl import PipelineTask

from gatehouse.components.artifacts.canonical import canonical_json
from gatehouse.components.calibration.stage import calibrate
from gatehouse.components.control.requiring.stage import require_no_leakage
from gatehouse.components.evaluation.spec import EvaluationSpec
from gatehouse.components.evaluation.stage import evaluate
from gatehouse.components.features.leakage.stage import MODEL_METRIC, check_leakage
from gatehouse.components.features.serving.stage import compare_online
from gatehouse.components.integration.stage import integrate
from gatehouse.components.launchers.spec import ONLINE_STORE, LocalLaunch
from gatehouse.components.launchers.timeouts import stage_minutes
from gatehouse.components.probing.stage import probe
from gatehouse.components.registry.registering.stage import register
from gatehouse.components.registry.resolving.stage import resolve
from gatehouse.components.splitting.spec import SplitSpec
from gatehouse.components.splitting.stage import split
from gatehouse.components.tasks.judging import Judging, judging_of
from gatehouse.components.tracking.cost import PRICES
from gatehouse.components.training.spec import operation_of, settings_of, task_of
from gatehouse.components.training.stage import train
from gatehouse.components.training.transformation.stage import fit_transformation
from gatehouse.components.tuning.stage import tune
from gatehouse.components.validation.contract import CONTRACT_FILE, published_contract
from gatehouse.pipelines.data import Data, add_alert, add_data_tasks, configuration_slice
from gatehouse.pipelines.tasks import Tasks
from gatehouse.project import Project
from gatehouse.project_file import ProjectFile


def training(project: Project, tasks: Tasks) -> Any:
    """Build the training pipeline of `project`; its tasks are collected in `tasks`."""
    file = project.file

    @dsl.pipeline(name=f"{project.name}-training", description=file.description or f"Train {file.model}.")
    def pipeline(
        store: str = project.store,
        source: str = "",
        window: str = "",
        seed: int = file.training.seed,
        force: str = "",
        backfill: str = "",
        cause: str = "",
    ) -> None:
        """Train a candidate and judge it.

        Args:
            store: Address of the artifact store.
            source: Read the raw tables here instead of the project's source; empty for the project's.
            window: Only events of START/END (end exclusive), e.g. 2013-01-01/2013-03-01; empty for all.
            backfill: Why rows of the earlier snapshot may change, where they do; empty where they may not.
            seed: Seed of trials and weights.
            force: Stages to run whatever the memo holds, e.g. train,evaluate@2; empty for none.
            cause: The order of monitoring that this run trains for: one run trains for one order; empty for none.
        """
        with tasks.begin(store, force, cause=cause):
            data = add_data_tasks(tasks, source, window, backfill)
            parts, checks = _add_split_tasks(tasks, data)
            candidate = _add_candidate_tasks(tasks, data, parts, seed)
            data_given = {"training_set": data.training_set, "split": parts}
            probes = file.probes
            probed = (
                tasks.add(probe, model=candidate, **data_given, spec=configuration_slice(probes)) if probes else None
            )
            checks |= {"validation": data.validation, "integration": _add_suite(tasks, data, parts, candidate)}
            _add_gate_tasks(tasks, data, parts, candidate, checks, probed)

    return pipeline


def _add_split_tasks(tasks: Tasks, data: Data) -> tuple[Any, dict[str, Any]]:
    """Leakage check, its requirement, and the split; returns the split, and what checked it and the training set."""
    file = tasks.project.file
    judging = judging_of(task_of(file.training))
    policy = tasks.project.policy.resolved(judging)
    checked = tasks.add(
        check_leakage,
        snapshot=data.snapshot,
        feature_tables=data.feature_tables,
        training_set=data.training_set,
        definitions=str(tasks.project.definitions.reference),
        alarm=file.features.leakage_alarm or judging.feature_alarm,
        model_alarm=(policy.leakage_alarm or {}).get(MODEL_METRIC, 1.0),
        model_alarm_severity=policy.terms_of(f"leakage alarm {MODEL_METRIC}").severity,
        unchecked=file.features.unchecked,
    )
    verdict, reasons, report = (checked.outputs[name] for name in ("verdict", "reasons", "leakage"))
    clean = tasks.add(require_no_leakage, verdict=verdict, reasons=reasons, report=report)
    spec = configuration_slice(split_of(file, judging))
    divided = tasks.add(split, training_set=data.training_set, spec=spec).after(clean)
    return divided.outputs["split"], {"leakage": report, "split_checks": divided.outputs["split_checks"]}


def split_of(file: ProjectFile, judging: Judging) -> SplitSpec:
    """The split, which by default warns of no feature that the leakage check lets pass."""
    checks = file.split.checks
    if "single_feature_auc" in checks.model_fields_set:
        return file.split
    alarm = max(checks.single_feature_auc, file.features.leakage_alarm or judging.feature_alarm)
    return file.split.model_copy(update={"checks": checks.model_copy(update={"single_feature_auc": alarm})})


def _add_candidate_tasks(tasks: Tasks, data: Data, parts: Any, seed: Any) -> Any:
    """The fitted transformation, tuning where wanted, training on the full budget, and calibration where wanted.

    Returns:
        The candidate.
    """
    file = tasks.project.file
    scheduling = 0.0 if isinstance(file.launch, LocalLaunch) else file.launch.scheduling_minutes
    minutes = stage_minutes(scheduling, file.training.operation.timeout_minutes)
    fitted = tasks.add(
        fit_transformation,
        training_set=data.training_set,
        split=parts,
        spec=configuration_slice(file.transformation),
        model_name=file.model,
    )
    transformation = fitted.outputs["transformation"]
    wanted: dict[str, Any] = {"spec": canonical_json(settings_of(file.training)), "seed": seed}
    if file.tuning is not None:
        tuned = tasks.add(
            tune,
            minutes=file.tuning.max_trial_count * minutes,
            training_set=data.training_set,
            split=parts,
            transformation=transformation,
            base=configuration_slice(file.training),
            spec=configuration_slice(file.tuning),
            model_name=file.model,
            seed=seed,
            resample_by=file.evaluation.resample_by,
        )
        _say_where(tuned, tasks)
        wanted = {"spec": tuned.outputs["best"], "refit": file.tuning.refits}
    trained = tasks.add(
        train,
        minutes=minutes * (2 if wanted.get("refit") else 1),
        training_set=data.training_set,
        split=parts,
        transformation=transformation,
        **wanted,
        operation=canonical_json(operation_of(file.training)),
        model_name=file.model,
    )
    _say_where(trained, tasks)
    if file.calibration is None:
        return trained.outputs["model"]
    calibrated = tasks.add(
        calibrate,
        model=trained.outputs["model"],
        training_set=data.training_set,
        split=parts,
        spec=configuration_slice(file.calibration),
    )
    return calibrated.outputs["model"]


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
        spec=configuration_slice(spec),
    )
    return tried.outputs["integration"]


def _say_where(task: PipelineTask, tasks: Tasks) -> None:
    """Tell a task where training runs and what it costs."""
    file = tasks.project.file
    if file.prices.per_hour:
        task.set_env_variable(PRICES, canonical_json(file.prices.model_dump(mode="json")))
    tasks.say_launch(task)


def _with_protected_columns(project: Project) -> EvaluationSpec:
    """What is measured, with fairness by the columns that the contract calls protected."""
    contract, spec = published_contract(project.contract.files[CONTRACT_FILE].decode()), project.file.evaluation
    return EvaluationSpec(**{**dict(spec), "protected": (*spec.protected, *contract.protected())})


def _add_gate_tasks(
    tasks: Tasks, data: Data, parts: Any, candidate: Any, checks: dict[str, Any], probed: PipelineTask | None
) -> None:
    """Champion, evaluation against it, whose page shows the probes, and registration behind the gate."""
    name, policy = tasks.project.file.model, configuration_slice(tasks.project.policy)
    resolved = tasks.add(
        resolve,
        model_name=name,
        candidate=candidate,
        training_set=data.training_set,
        split=parts,
        policy=policy,
    )
    evaluated = tasks.add(
        evaluate,
        model=candidate,
        champion=resolved.outputs["champion"],
        training_set=data.training_set,
        split=parts,
        **checks,
        spec=configuration_slice(_with_protected_columns(tasks.project)),
        policy=policy,
    )
    if probed is not None:
        evaluated.after(probed)
    evaluation = evaluated.outputs["evaluation"]
    registered = tasks.add(register, model_name=name, model=candidate, evaluation=evaluation, policy=policy)
    asks = tasks.project.policy.approval == "manual" or tasks.project.policy.inconclusive == "approval"
    if asks and tasks.project.file.alerts != "never":
        add_alert(tasks, registered, "register", evaluation)
