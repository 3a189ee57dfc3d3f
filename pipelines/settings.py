"""The settings of a project, given to the tasks of a pipeline in one pass after KFP has built them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kfp.dsl import ExitHandler, PipelineTask
from kfp.dsl.pipeline_context import Pipeline

from gatehouse.components import report_end
from gatehouse.components.interface import RETRIES, Task, set_attempts, set_environment
from gatehouse.errors import ConfigurationError
from gatehouse.launchers.launcher import stage_minutes
from gatehouse.launchers.spec import LocalLaunch
from gatehouse.operations.diagnosing_stage import MINUTES
from gatehouse.operations.outbox import variables_of
from gatehouse.pieces.engine import Engine
from gatehouse.project.project import Project
from gatehouse.project.project_file import StageSettings
from gatehouse.runtime.images import RAY, image, training
from gatehouse.runtime.variables import ENGINE, LAUNCH, ONLINE_STORE
from gatehouse.store.canonical import canonical_json
from gatehouse.store.image import stages_of
from gatehouse.store.parameters import parameter_of
from gatehouse.store.stage import TOLERATE
from gatehouse.tracking.provenance import PRICES

if TYPE_CHECKING:
    from gatehouse.project.platforms import Platform

WEBHOOK = ("alert-webhook", "GATEHOUSE_ALERT_WEBHOOK")
"""Key of the secret `gatehouse-credentials`, and the variable of the environment that gets it."""
_SECRETS = {
    "report_end": WEBHOOK,
    "reconcile": WEBHOOK,
    "materialize": ("online-store", ONLINE_STORE),
    "compare_online": ("online-store", ONLINE_STORE),
}
"""Keys of the platform's secret that the tasks of a component get, and no other task."""
_PRICED, _LAUNCHING = ("train", "report_end", "reconcile"), ("train", "diagnose")
_DIVIDED, _LOCALLY = {"validate", "compute_features"}, {"score"}
"""Stages that are divided into pieces; and those whose pieces need PyTorch, which the image of Ray lacks."""


class Settings:
    """Gives tasks what a project and a platform say, and collects their stages in order for the terminal.

    Attributes:
        platform: None for a run on this machine, which has no pods and does not retry.
        training: Name of the version of the training pipeline that a retraining runs; empty for the newest one.
        plan: Name in KFP, stage and title of each step.
    """

    def __init__(self, pipeline: str, project: Project, platform: "Platform | None" = None, training: str = "") -> None:
        self.pipeline = pipeline
        self.project = project
        self.platform = platform
        self.training = training
        self.plan: list[tuple[str, str, str]] = []

    @property
    def source(self) -> dict[str, Any]:
        """The inputs of `snapshot` that the project declares; the contract's sensitive columns are the source's too."""
        file = self.project.file
        return {
            "source": parameter_of(self.project.source),
            "contract": {"reference": str(self.project.contract.reference)},
            "baseline": file.baseline,
            "snapshots": file.snapshots,
            "configs": [str(config.reference) for config in self.project.configs()],
        }

    @property
    def definitions(self) -> dict[str, Any]:
        """The inputs of `compute_features` that the project declares, but for those on a training set."""
        reference, features = str(self.project.definitions.reference), self.project.file.features
        named = {"definitions": {"reference": reference}, "project": self.project.name}
        return named | {"freshness_against": features.freshness_against}

    @property
    def submission(self) -> dict[str, Any]:
        """The input of `retrain` that the platform declares: how a training is submitted there."""
        if (place := self.platform) is None:
            return {}
        of_profile = {"experiment": place.experiment, "service_account": place.service_account}
        submission = of_profile | {"plugins_input": place.plugins_input, "version": self.training}
        return {name: value for name, value in submission.items() if value}

    @property
    def notices(self) -> dict[str, Any]:
        """The inputs of `report_end` and `reconcile` that say who gets notices and events."""
        file = self.project.file
        events = {name: place.model_dump(mode="json", exclude_defaults=True) for name, place in file.events.items()}
        notices = {"owners": file.owners, "when": file.alerts, "form": file.alert_form}
        return notices | ({"events": events, "model_name": file.model} if events else {})

    @contextmanager
    def applied(self, store: Any) -> Iterator[None]:
        """Give the tasks that are added in this context their settings; however these end, one more reports the end.

        No task may depend on the group of the exit handler. If a task in the group fails, Argo skips the dependent
        task, the group takes the state of `report_end`, and KFP shows a failed run as succeeded.

        Raises ConfigurationError if a run may go on without a stage that it needs.
        """
        reported = report_end(store=store, project=self.project.name, pipeline=self.pipeline, **self.notices)
        with ExitHandler(reported, name="Open: all stages"):
            yield
        tasks = [task for task in Pipeline.get_default_pipeline().tasks.values() if isinstance(task, Task)]
        within = [task for task in tasks if task is not reported]
        for task in (*within, reported):
            self._apply(task)
        # Only a pod's end tells KFP that the group has ended: if the last task comes from the cache, the task that
        # reports the end gets the state RUNNING. So tasks that no other waits for are not cached.
        awaited = {name for task in within for name in task.dependent_tasks}
        awaited |= {channel.task_name for task in within for channel in task.channel_inputs}
        for task in within:
            if task.name not in awaited:
                task.set_caching_options(enable_caching=False)

    def _apply(self, task: Task) -> None:
        """Give one task its settings: retries, resources, place, variables, secrets, and what may fail."""
        name, file = task.component_spec.name.replace("-", "_"), self.project.file
        stages = stages_of(name, task.inputs)
        self.plan += [(task.name, stage.name, stage.declared.title) for stage in stages]
        own = {stage.name: file.stages.get(stage.name, StageSettings()) for stage in stages}
        tolerated = [stage.name for stage in stages if own[stage.name].on_failure == "warn"]
        if needed := [stage.name for stage in stages if stage.name in tolerated and not stage.declared.advisory]:
            problem = f"on_failure: expected stop in {self.pipeline}, found warn: the run needs what it gives"
            raise ConfigurationError("\n".join(f"stages.{stage}.{problem}" for stage in needed))
        if file.prices.per_hour and name in _PRICED:
            task.set_env_variable(PRICES, canonical_json(file.prices.model_dump(mode="json")))
        if name in _LAUNCHING:
            self._say_launch(task)
        engine = (self.platform and self.platform.engine) or file.engine
        if not (_DIVIDED | (_LOCALLY if engine.kind == "local" else set())) & own.keys():
            engine = Engine()
        if engine != Engine():
            task.set_env_variable(ENGINE, canonical_json(engine.model_dump(mode="json", exclude_defaults=True)))
        minutes = max(task.needs.minutes, self._minutes(name))
        if self.platform is None:
            set_attempts(task, minutes * 60, 0)
        else:
            from gatehouse.pipelines import pods

            retries = next((setting.retries for setting in own.values() if setting.retries), RETRIES)
            set_environment(task, self.platform.settings, self.platform.credentials)
            carrier = RAY if engine.needs_ray else ""
            pods.equip(task, minutes, file.resources.get(name), retries, self.platform, carrier)
            secret = _SECRETS.get(name)
            if name == "snapshot" and (url_env := getattr(file.source, "url_env", "")):
                secret = ("source-url", url_env)
            if secret:
                pods.mount_secret(task, *secret, self.platform)
            if secret == WEBHOOK:
                for key, variable in variables_of(*file.events).items():
                    pods.mount_secret(task, key, variable, self.platform)
        if tolerated:
            # What a stage gave that failed and was let pass must not come out of KFP's cache.
            task.set_env_variable(TOLERATE, ",".join(tolerated)).set_caching_options(enable_caching=False)

    def _minutes(self, name: str) -> int:
        """The least time limit of a task, where the configuration lets it run longer than its component declares."""
        file = self.project.file
        scheduling = 0.0 if isinstance(file.launch, LocalLaunch) else file.launch.scheduling_minutes
        if name == "train":
            trainings = 1 + (file.tuning.refits + file.tuning.max_trial_count if file.tuning else 0)
            return trainings * stage_minutes(scheduling, file.training.operation.timeout_minutes)
        return stage_minutes(scheduling, MINUTES) if name == "diagnose" and scheduling else 0

    def _say_launch(self, task: PipelineTask) -> None:
        """Tell a task where jobs run. Not as a parameter: it is no part of a cache key."""
        launch = self.project.file.launch
        if launch == LocalLaunch():
            return
        settings = {"kind": launch.kind} | launch.model_dump(mode="json", exclude_defaults=True)
        if not isinstance(launch, LocalLaunch):
            name = training(launch.resources.gpus)
            settings["image"] = launch.image or (self.platform.image(name) if self.platform else image(name))
        task.set_env_variable(LAUNCH, canonical_json(settings))
