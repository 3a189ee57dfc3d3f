"""The tasks of a pipeline: each gets what its stage declares, and what every task of a run shares."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from kfp.dsl import ExitHandler, PipelineTask

from gatehouse.components.alerting.stage import alert
from gatehouse.components.artifacts.canonical import canonical_json
from gatehouse.components.artifacts.stage import TOLERATE, Stage, declared_stages
from gatehouse.components.control.preparing.stage import prepare
from gatehouse.components.control.requiring.stage import require_success
from gatehouse.components.launchers.choose import LAUNCH
from gatehouse.components.launchers.spec import LocalLaunch
from gatehouse.components.operations.ending.stage import report_end
from gatehouse.components.operations.reconciling.stage import reconcile
from gatehouse.components.tracking.cost import PRICES
from gatehouse.errors import ConfigurationError
from gatehouse.images import image, training
from gatehouse.pipelines.interfaces import component_of
from gatehouse.pipelines.preparation import prepare_component
from gatehouse.project import Project
from gatehouse.task_settings import StageSettings

if TYPE_CHECKING:
    from gatehouse.platforms import Platform

RETRIES = 2
"""How often KFP tries a task again, where the project says nothing else."""
WEBHOOK = ("alert-webhook", "GATEHOUSE_ALERT_WEBHOOK")
"""Key of the secret `gatehouse-credentials`, and the variable of the environment that gets it."""
_TELLERS = (alert.name,)
"""Stages that decide nothing of a run: they tell what others decided."""


class Tasks:
    """Adds tasks to a pipeline while KFP builds it, and collects them in order for the terminal.

    Attributes:
        pipeline: Name of the pipeline.
        project: The project that it is built for.
        platform: Where it runs; None for a run on this machine, where there are no pods, and where nobody wants to wait
            for retries.
        plan: Name of the task in KFP, stage and title of each.
    """

    def __init__(self, pipeline: str, project: Project, platform: "Platform | None" = None) -> None:
        self.pipeline = pipeline
        self.project = project
        self.platform = platform
        self.plan: list[tuple[str, str, str]] = []
        self._store: Any = project.store
        self._prepared: PipelineTask | None = None
        self._takers: dict[str, set[str]] = {}

    def at(self, store: Any) -> None:
        """Say where the run keeps its artifacts: the pipeline's parameter `store`. `begin` does this too."""
        self._store = store

    @contextmanager
    def begin(self, store: Any, force: Any = None, **given: Any) -> Iterator[None]:
        """Within this context the tasks of the run are added; however these end, one more task reports the end.

        Another requires that all of them ended well, as KFP at times reports success although one failed.

        Args:
            store: The pipeline's parameter `store`.
            force: The pipeline's parameter `force`: with it, the first task hands each stage its nonce.
            **given: What else of the pipeline's parameters the first task checks: `since` and `until`, and `cause`, an
                order that it claims.
        """
        self.at(store)
        reported, last = self._add_report()
        with ExitHandler(reported, name=f"The {self.pipeline}") as handled:
            if force is not None:
                stages = forcible_stages()
                configs = [str(config.reference) for config in self.project.configs()]
                arguments = {"force": force, "stages": list(stages), "configs": configs}
                arguments |= given | ({"model_name": self.project.file.model} if "cause" in given else {})
                self._prepared = self._add(prepare_component(stages), prepare, "", 0, arguments)
            yield
        self._require_no_dependents()
        self.add(require_success).after(handled)
        self.plan.append(last)

    def _add_report(self) -> tuple[PipelineTask, tuple[str, str, str]]:
        """The task that reports the end of the run, and its line of the plan, in which it comes last."""
        file = self.project.file
        about = {"project": self.project.name, "pipeline": self.pipeline, "owners": file.owners}
        component = component_of(report_end.name)
        reported = self._add(component, report_end, "", 0, about | {"when": file.alerts, "form": file.alert_form})
        self._let_tell(reported)
        return reported, self.plan.pop()

    def _let_tell(self, task: PipelineTask) -> None:
        """Give a task the webhook, and what machines cost."""
        prices = self.project.file.prices
        if prices.per_hour:
            task.set_env_variable(PRICES, canonical_json(prices.model_dump(mode="json")))
        self.entrust(task, *WEBHOOK)

    def add_reconciliation(self, pipelines: Sequence[str]) -> None:
        """Add the task that looks after earlier runs of these pipelines: it reports and cleans what nobody did."""
        file = self.project.file
        told: dict[str, Any] = {"when": file.alerts, "form": file.alert_form, "owners": file.owners}
        watched = {
            name: schedule.model_dump(mode="json", exclude_defaults=True)
            for name, schedule in file.schedules.items()
            if schedule.sla_hours is not None
        }
        self._let_tell(
            self.add(reconcile, project=self.project.name, pipelines=list(pipelines), schedules=watched, **told)
        )

    def _require_no_dependents(self) -> None:
        """Refuse that a run goes on without a stage which it needs.

        Raises:
            ConfigurationError: naming each such stage, and what needs it.
        """
        deciding = [(task, stage) for task, stage, _ in self.plan if stage not in _TELLERS]
        problems = []
        for task, stage in deciding:
            settings = self.project.file.stages.get(stage)
            if settings is None or settings.on_failure == "stop":
                continue
            takers = sorted(taker for taker in self._takers.get(task, ()) if taker not in _TELLERS)
            why = f"{', '.join(takers)} needs what it gives" if takers else "it is what the pipeline is for"
            if takers or (task, stage) == deciding[-1]:
                problems.append(f"stages.{stage}.on_failure: expected stop in {self.pipeline}, found warn: {why}")
        if problems:
            raise ConfigurationError("\n".join(dict.fromkeys(problems)))

    def add(self, stage: Stage[Any, Any], /, *, title: str = "", minutes: int = 0, **arguments: Any) -> PipelineTask:
        """Add the task of a stage, with the settings that it declares; store, code and nonce are given to it.

        Args:
            stage: The stage.
            title: What people call the task, where its stage runs twice in a pipeline.
            minutes: The least timeout, where the configuration lets the task run longer than the stage declares.
            **arguments: The other parameters of its component: the fields of its request.
        """
        component = component_of(stage.name)
        if "code" in component.component_spec.inputs:
            arguments["code"] = stage.code()
        if "force" in component.component_spec.inputs and "force" not in arguments:
            assert self._prepared is not None, f"{stage.name} can be forced: begin the pipeline with `force`"
            arguments["force"] = self._prepared.outputs[stage.name]
        return self._add(component, stage, title, minutes, arguments)

    def _add(
        self, component: Any, stage: Stage[Any, Any], title: str, minutes: int, arguments: dict[str, Any]
    ) -> PipelineTask:
        task = component(store=self._store, **arguments)
        title = title or stage.declared.title
        self.plan.append((task.name, stage.name, title))
        for channel in task.channel_inputs:
            if channel.task_name:
                self._takers.setdefault(channel.task_name, set()).add(stage.name)
        task.set_display_name(title)
        settings = self.project.file.stages.get(stage.name, StageSettings())
        retries, tolerated = settings.retries or RETRIES, settings.on_failure == "warn"
        if tolerated:
            attempts = 1 + retries if stage.declared.effects.retry_safe and self.platform is not None else 1
            task.set_env_variable(TOLERATE, str(attempts))
        # What a stage gave that failed and was let pass must not come out of KFP's cache.
        task.set_caching_options(enable_caching=stage.cacheable and not tolerated)
        if self.platform is not None:
            from gatehouse.pipelines.pods import equip

            given = self.project.file.resources.get(stage.name)
            equip(task, stage.declared, minutes, given, retries, self.platform)
        return task

    def entrust(self, task: PipelineTask, key: str, variable: str) -> None:
        """Give one task alone a secret as an environment variable; on this machine it is in the environment already.

        Args:
            task: The task.
            key: Of the platform's secret with credentials.
            variable: Name of the environment variable.
        """
        if self.platform is not None:
            from gatehouse.pipelines.pods import entrust

            entrust(task, key, variable, self.platform)

    def say_launch(self, task: PipelineTask) -> None:
        """Tell a task where jobs run. Not as a parameter: it is no part of a cache key."""
        launch = self.project.file.launch
        if launch == LocalLaunch():
            return
        given = {"kind": launch.kind} | launch.model_dump(mode="json", exclude_defaults=True)
        if not isinstance(launch, LocalLaunch):
            given["image"] = launch.image or self.image(training(launch.resources.gpus))
        task.set_env_variable(LAUNCH, canonical_json(given))

    def image(self, name: str) -> str:
        """The image of this name, as pods pull it."""
        return self.platform.image(name) if self.platform else image(name)


@cache
def forcible_stages() -> tuple[str, ...]:
    """Names of the stages whose component takes a nonce, in order."""
    tasks = (name for name, stage in declared_stages().items() if not stage.declared.inner and name != prepare.name)
    return tuple(sorted(name for name in tasks if "force" in component_of(name).component_spec.inputs))
