"""The training pipeline: from the source to a candidate that the gate has judged."""

from typing import Any

from kfp import dsl

from gatehouse.components.evaluation.component import evaluate
from gatehouse.components.evaluation.stage import evaluate as evaluate_stage
from gatehouse.components.features.component import check_leakage
from gatehouse.components.features.stage import check_leakage as check_leakage_stage
from gatehouse.components.registry.component import register, resolve
from gatehouse.components.splitting.component import split
from gatehouse.components.splitting.stage import split as split_stage
from gatehouse.components.training.component import train
from gatehouse.components.training.stage import train as train_stage
from gatehouse.components.tuning.component import tune
from gatehouse.components.tuning.stage import tune as tune_stage
from gatehouse.pipelines.data import add_data_tasks, configuration_slice
from gatehouse.pipelines.governance import Tasks
from gatehouse.pipelines.require import require_no_leakage
from gatehouse.project import Project


def training(project: Project, tasks: Tasks) -> Any:
    """Build the training pipeline of `project`; its tasks are collected in `tasks`."""
    file = project.file
    definitions = str(project.definitions.reference)
    policy = configuration_slice(project.policy)

    @dsl.pipeline(name=f"{project.name}-training", description=file.description or f"Train {file.model}.")
    def pipeline(
        store: str = file.store,
        source: str = "",
        window: str = "",
        seed: int = file.training.seed,
        force: str = "",
    ) -> None:
        """Train a candidate and judge it.

        Args:
            store: Address of the artifact store.
            source: Read the raw tables here instead of the project's source; empty for the project's.
            window: Only events of START/END (end exclusive), e.g. 2013-01-01/2013-03-01; empty for all.
            seed: Seed of trials and weights.
            force: Stages to run whatever the memo holds, e.g. train,evaluate@2; empty for none.
        """
        data = add_data_tasks(tasks, project, store, source, window, force)
        ready, training_set = data.ready, data.training_set

        def forced(stage: str) -> Any:
            return ready.outputs[stage]

        checked = tasks.add(
            check_leakage(
                store=store,
                snapshot=data.snapshot,
                feature_tables=data.feature_tables,
                training_set=training_set,
                definitions=definitions,
                alarm=file.features.leakage_alarm,
                code=check_leakage_stage.code(),
                force=forced("check_leakage"),
            ),
            "check_leakage",
            "Check for leakage",
        )
        clean = tasks.add(
            require_no_leakage(
                store=store,
                verdict=checked.outputs["verdict"],
                reasons=checked.outputs["reasons"],
                report=checked.outputs["leakage"],
            ),
            "require_no_leakage",
            "Require no leakage",
        )
        divided = tasks.add(
            split(
                store=store,
                training_set=training_set,
                spec=configuration_slice(file.split),
                code=split_stage.code(),
                force=forced("split"),
            ).after(clean),
            "split",
            "Split by time",
        )
        tuned = tasks.add(
            tune(
                store=store,
                training_set=training_set,
                split=divided.outputs["split"],
                base=configuration_slice(file.training),
                space=configuration_slice(file.tuning),
                model_name=file.model,
                seed=seed,
                code=tune_stage.code(),
                force=forced("tune"),
            ),
            "tune",
            "Tune hyperparameters",
        )
        trained = tasks.add(
            train(
                store=store,
                training_set=training_set,
                split=divided.outputs["split"],
                spec=tuned.outputs["best"],
                model_name=file.model,
                code=train_stage.code(),
                force=forced("train"),
            ),
            "train",
            "Train the candidate",
        )
        resolved = tasks.add(
            resolve(
                store=store,
                model_name=file.model,
                candidate=trained.outputs["model"],
                training_set=training_set,
                split=divided.outputs["split"],
                policy=policy,
            ),
            "resolve",
            "Resolve the champion",
        )
        evaluated = tasks.add(
            evaluate(
                store=store,
                model=trained.outputs["model"],
                champion=resolved.outputs["champion"],
                training_set=training_set,
                split=divided.outputs["split"],
                spec=configuration_slice(file.evaluation),
                policy=policy,
                code=evaluate_stage.code(),
                force=forced("evaluate"),
            ),
            "evaluate",
            "Evaluate against the champion",
        )
        tasks.add(
            register(
                store=store,
                model_name=file.model,
                model=trained.outputs["model"],
                evaluation=evaluated.outputs["evaluation"],
                policy=policy,
            ),
            "register",
            "Register behind the gate",
        )

    return pipeline
