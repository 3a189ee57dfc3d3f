"""The tasks of a pipeline: each gets what its stage declares, and what every task of a run shares."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from kfp.dsl import ExitHandler, PipelineTask

from gatehouse.components.interface import RETRIES
from gatehouse.errors import ConfigurationError
from gatehouse.launchers.spec import LocalLaunch
from gatehouse.operations.ending_stage import report_end
from gatehouse.operations.reconciling_stage import reconcile
from gatehouse.pipelines.interfaces import component_of
from gatehouse.project.project import Project
from gatehouse.project.project_file import StageSettings
from gatehouse.runtime.images import image, training
from gatehouse.runtime.variables import LAUNCH
from gatehouse.store.canonical import canonical_json
from gatehouse.store.stage import TOLERATE, Stage, declared_stages, in_task
from gatehouse.tracking.provenance import PRICES

if TYPE_CHECKING:
    from gatehouse.project.platforms import Platform

WEBHOOK = ("alert-webhook", "GATEHOUSE_ALERT_WEBHOOK")
"""Key of the secret `gatehouse-credentials`, and the variable of the environment that gets it."""


class Tasks:
    """Adds tasks to a pipeline while KFP builds it, and collects them in order for the terminal.

    Attributes:
        platform: None for a run on this machine, which has no pods and does not retry.
        plan: Name in KFP, stage and title of each task.
    """

    def __init__(self, pipeline: str, project: Project, platform: "Platform | None" = None) -> None:
        self.pipeline = pipeline
        self.project = project
        self.platform = platform
        self.plan: list[tuple[str, str, str]] = []
        self._store: Any = project.store
        self._rerun: Any = ""
        self._consumers: dict[str, set[str]] = {}
        self._tasks: list[PipelineTask] = []
        self._producers: dict[str, defaultdict[str, list[str]]] = {}

    def at(self, store: Any, rerun: Any = "") -> None:
        """Take the pipeline's parameters `store` and `rerun` for all tasks; `begin` does this too."""
        self._store, self._rerun = store, rerun

    @contextmanager
    def begin(self, store: Any, rerun: Any = "") -> Iterator[None]:
        """Within this context the tasks of the run are added; however these end, one more task reports the end.

        No task may depend on the group of the exit handler. If a task in the group fails, Argo skips the dependent
        task, the group takes the state of `report_end`, and KFP shows a failed run as succeeded.
        """
        self.at(store, rerun)
        file = self.project.file
        reported = self.add(
            report_end,
            project=self.project.name,
            pipeline=self.pipeline,
            owners=file.owners,
            when=file.alerts,
            form=file.alert_form,
        )
        self._add_webhook(reported)
        last = self.plan.pop()
        with ExitHandler(reported, name="Open: all stages"):
            yield
        # Only a pod's end tells KFP that the group has ended: if the last task comes from the cache, the task that
        # reports the end gets the state RUNNING. So tasks that no other waits for are not cached.
        awaited = {name for task in self._tasks for name in task.dependent_tasks}
        awaited |= {channel.task_name for task in self._tasks for channel in task.channel_inputs}
        for task in self._tasks:
            if task.name not in awaited:
                task.set_caching_options(enable_caching=False)
        self._require_no_dependents()
        self.plan.append(last)

    def _add_webhook(self, task: PipelineTask) -> None:
        """Give a task the webhook, and what machines cost."""
        prices = self.project.file.prices
        if prices.per_hour:
            task.set_env_variable(PRICES, canonical_json(prices.model_dump(mode="json")))
        self.entrust(task, *WEBHOOK)

    def add_reconciliation(self, pipelines: Sequence[str]) -> None:
        """Add the task that looks after earlier runs of these pipelines: it reports and cleans what nobody did."""
        file = self.project.file
        watched = {
            name: schedule.model_dump(mode="json", exclude_defaults=True)
            for name, schedule in file.schedules.items()
            if schedule.sla_hours is not None
        }
        reconciled = self.add(
            reconcile,
            project=self.project.name,
            pipelines=list(pipelines),
            schedules=watched,
            when=file.alerts,
            form=file.alert_form,
            owners=file.owners,
        )
        self._add_webhook(reconciled)

    def _require_no_dependents(self) -> None:
        """Refuse that a run goes on without a stage which it needs.

        Raises ConfigurationError, naming each such stage, and what needs it.
        """
        stages = [stage for _, stage, _ in self.plan]
        problems = []
        for stage in stages:
            settings = self.project.file.stages.get(stage)
            if settings is None or settings.on_failure == "stop":
                continue
            takers = sorted(self._consumers.get(stage, set()))
            why = f"{', '.join(takers)} needs what it gives" if takers else "it is what the pipeline is for"
            if takers or stage == stages[-1]:
                problems.append(f"stages.{stage}.on_failure: expected stop in {self.pipeline}, found warn: {why}")
        if problems:
            raise ConfigurationError("\n".join(dict.fromkeys(problems)))

    def add(
        self,
        stage: Stage[Any, Any],
        /,
        *stages: Stage[Any, Any],
        title: str = "",
        minutes: int = 0,
        aside: Mapping[Stage[Any, Any], Sequence[str]] = MappingProxyType({}),
        **arguments: Any,
    ) -> PipelineTask:
        """Add the task of a stage, with the settings of the project; it gets store and `rerun`.

        Args:
            stage: The stage whose component it is.
            *stages: The stages that it runs, in order; without them, `stage` alone.
            title: Name of the task for people; by default the title of its stage.
            minutes: The least time of the stage, where the configuration lets it run longer than it declares.
            aside: Stages of the task that no later stage needs, with their outputs.
            **arguments: The other parameters of its component.
        """
        ran = stages or (stage,)
        assert {run.name for run in ran} <= {part.name for part in in_task(stage)}, f"{stage.name} has another task"
        component = component_of(stage.name)
        if "rerun" in (component.component_spec.inputs or {}):
            arguments["rerun"] = self._rerun
        inputs = {"store": self._store, **arguments}
        if self.platform is None:
            task = component.add(inputs, retries=0)
        else:
            task = component.add(inputs, self.platform.settings, self.platform.credentials)
        title = title or stage.declared.title
        self._tasks.append(task)
        self.plan += [(task.name, run.name, run.declared.title if stages else title) for run in ran]
        task.set_display_name(title)
        # Note which stages need outputs of others: those before them in their task, or those of another task.
        needed = [run.name for run in ran if run not in aside]
        for name, following in pairwise(needed):
            self._consumers.setdefault(name, set()).add(following)
        gives = {output: [run.name] for run, outputs in aside.items() for output in outputs}
        self._producers[task.name] = defaultdict(lambda: needed, gives)
        for channel in task.channel_inputs:
            if channel.task_name:
                for giver in self._producers[channel.task_name][channel.name]:
                    self._consumers.setdefault(giver, set()).add(needed[0])
        settings = {run.name: self.project.file.stages.get(run.name, StageSettings()) for run in ran}
        retries = settings[stage.name].retries or RETRIES
        tolerated = [name for name, setting in settings.items() if setting.on_failure == "warn"]
        if tolerated:
            task.set_env_variable(TOLERATE, ",".join(tolerated))
        if self.platform is not None:
            from gatehouse.pipelines import pods

            resources = self.project.file.resources.get(stage.name)
            pods.equip(task, component, minutes, resources, retries, self.platform)
        # What a stage gave that failed and was let pass must not come out of KFP's cache.
        if tolerated:
            task.set_caching_options(False)
        return task

    def entrust(self, task: PipelineTask, key: str, variable: str) -> None:
        """Give one task a `key` of the platform's secret with credentials as an environment variable.

        On this machine the variable is in the environment already.
        """
        if self.platform is not None:
            from gatehouse.pipelines import pods

            pods.entrust(task, key, variable, self.platform)

    def say_launch(self, task: PipelineTask) -> None:
        """Tell a task where jobs run. Not as a parameter: it is no part of a cache key."""
        launch = self.project.file.launch
        if launch == LocalLaunch():
            return
        settings = {"kind": launch.kind} | launch.model_dump(mode="json", exclude_defaults=True)
        if not isinstance(launch, LocalLaunch):
            settings["image"] = launch.image or self.image(training(launch.resources.gpus))
        task.set_env_variable(LAUNCH, canonical_json(settings))

    def image(self, name: str) -> str:
        """The image of this name, as pods pull it."""
        return self.platform.image(name) if self.platform else image(name)


def forcible_stages() -> list[str]:
    """Names of the stages that keep what they made, in a memo or by themselves, in order."""
    stages = [stage for stage in declared_stages().values() if not stage.declared.inner]
    return sorted(
        stage.name for stage in stages if stage.declared.effects.memo or "force" in stage.request.model_fields
    )
