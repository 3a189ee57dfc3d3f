"""The training pipeline: from the source to a candidate that the gate has judged."""

from typing import Any

from kfp import dsl

from gatehouse.components import compare_online, compute_features, evaluate, integrate, register, snapshot, split, train
from gatehouse.data.validation.contract import CONTRACT_FILE, published_contract
from gatehouse.evaluation.spec import EvaluationSpec
from gatehouse.metrics.judging import profile_of
from gatehouse.pipelines.settings import Settings
from gatehouse.project.project import Project
from gatehouse.store.parameters import parameter_of, section_of
from gatehouse.training.spec import task_of


def training(project: Project, settings: Settings) -> Any:
    """Build the training pipeline of `project`."""
    file = project.file
    # Fairness is measured by the columns that the contract calls protected too.
    contract = published_contract(project.contract.files[CONTRACT_FILE].decode())
    protected = (*file.evaluation.protected, *contract.protected())
    measured = EvaluationSpec(**{**dict(file.evaluation), "protected": protected})

    @dsl.pipeline(name=f"{project.name}-training", description=file.description or f"Train {file.model}.")
    def pipeline(
        store: str = project.store,
        source: str = "",
        window: str = "",
        seed: int = file.training.seed,
        rerun: str = "",
        backfill: str = "",
    ) -> None:
        """Train a candidate and judge it.

        Args:
            store: Address of the artifact store.
            source: Read the raw tables here, as s3://bucket/folder; empty for the project's source.
            window: Only events of START/END (end exclusive), as 2013-01-01/2013-03-01; empty for all.
            seed: Seed of trials and weights.
            rerun: Stages to run whatever the memo holds, as train,evaluate; empty for none.
            backfill: Why rows of the earlier snapshot may change, where they do; empty where they may not.
        """
        with settings.applied(store):
            data = snapshot(
                store=store,
                **settings.source,
                location=source,
                window=window,
                backfill=backfill,
                model_name=file.model,
                rerun=rerun,
            ).outputs
            rows = compute_features(
                snapshot=data["snapshot"],
                validation=data["validation"],
                **settings.definitions,
                service=file.features.service,
                leakage_alarm=file.features.leakage_alarm or profile_of(task_of(file.training)).feature_alarm,
                unchecked=dict(file.features.unchecked),
            ).outputs
            parts = split(data=rows["training_set"], leakage=rows["leakage"], spec=parameter_of(file.split)).outputs
            candidate = train(
                split=parts["split"],
                spec=parameter_of(file.training),
                transformation=parameter_of(file.transformation),
                search=section_of(file.tuning),
                refit=bool(file.tuning and file.tuning.refits),
                calibration=section_of(file.calibration),
                model_name=file.model,
                seed=seed,
            ).outputs["model"]
            checks = {"validation": data["validation"], "leakage": rows["leakage"]}
            if file.integration:
                online = compare_online(training_set=rows["training_set"], max_skew=file.features.max_skew)
                tried = integrate(
                    model=candidate,
                    online=online.outputs["comparison"],
                    tests=str(project.tests.reference) if project.tests else "",
                    spec=parameter_of(file.integration),
                )
                checks["integration"] = tried.outputs["integration"]
            judged = evaluate(
                model=candidate,
                split=parts["split"],
                **checks,
                spec=parameter_of(measured),
                policy=parameter_of(project.policy),
                model_name=file.model,
            ).outputs
            register(model=candidate, evaluation=judged["evaluation"], model_name=file.model)

    return pipeline
