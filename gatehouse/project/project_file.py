"""The file project.yaml: everything that a project declares, and the settings of its single tasks."""

import re
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, StringConstraints, field_validator, model_validator

from gatehouse.configuration.schedule import Schedule
from gatehouse.configuration.strict import Strict
from gatehouse.configuration.trigger import Trigger
from gatehouse.data.sources.catalog import SourceSpec
from gatehouse.data.splitting.spec import SplitSpec
from gatehouse.data.validation.contract import refuse
from gatehouse.evaluation.spec import EvaluationSpec, IntegrationSpec
from gatehouse.features.spec import FeaturesSpec
from gatehouse.launchers.spec import Launch, LocalLaunch, division_problem
from gatehouse.monitoring.spec import MonitoringSpec
from gatehouse.operations.notice import Form, When
from gatehouse.operations.outbox import Destination
from gatehouse.pieces.engine import Engine
from gatehouse.project.signatures import pods
from gatehouse.store.image import stages_of
from gatehouse.tracking.provenance import Prices
from gatehouse.training.model_spec import CalibrationSpec, TransformationSpec
from gatehouse.training.spec import TrainSpec, task_of
from gatehouse.tuning.configuration import configured, infeasible, none_held_out
from gatehouse.tuning.spec import ExperimentSpec

_Value = TypeVar("_Value")


class TaskResources(Strict):
    """Resources of the pod of one task; empty values stay as its stage declares them."""

    cpu: str = Field("", description="CPUs, as Kubernetes writes them.")
    memory: str = Field("", description="Memory, such as 32G or 512Mi.")
    accelerator: int = Field(0, ge=0, le=64, description="Number of accelerators.")
    accelerator_type: str = Field("nvidia.com/gpu", description="Resource name of the accelerators.")

    @field_validator("cpu", mode="before")
    @classmethod
    def _number(cls, value: Any) -> Any:
        """YAML reads `cpu: 8` as a number."""
        return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value

    @field_validator("cpu")
    @classmethod
    def _some_cpu(cls, cpu: str) -> str:
        if cpu and not (re.fullmatch(r"[0-9]+m|[0-9]+(\.[0-9]+)?", cpu) and float(cpu.rstrip("m"))):
            raise ValueError(f"expected CPUs, more than none, as 4, 0.5 or 500m, found {cpu!r}")
        return cpu

    @field_validator("memory")
    @classmethod
    def _some_memory(cls, memory: str) -> str:
        if memory and not (re.fullmatch(r"[0-9]+(\.[0-9]+)?[EPTGMK]i?", memory) and float(memory.rstrip("EPTGMKi"))):
            raise ValueError(f"expected an amount of memory, more than none, as 32G or 512Mi, found {memory!r}")
        return memory


def of_stages(settings: dict[str, _Value]) -> dict[str, _Value]:
    """Settings by stage, if every key is the name of a stage that a component runs.

    Raises ValueError, naming the other keys.
    """
    stages = {stage.name for component in pods() for stage in stages_of(component)}
    if unknown := sorted(settings.keys() - stages):
        raise ValueError(f"expected names of stages ({', '.join(sorted(stages))}), found {', '.join(unknown)}")
    return settings


def of_components(settings: dict[str, _Value]) -> dict[str, _Value]:
    """Settings by component, if a pipeline has a task of every one.

    Raises ValueError, naming the other keys, and the components whose pods run them.
    """
    if unknown := sorted(settings.keys() - set(pods())):
        runs = {stage.name: component for component in pods() for stage in stages_of(component)}
        hints = [f"{runs[name]} instead of {name}, which its pod runs" for name in unknown if name in runs]
        raise ValueError(f"expected {', '.join(hints or pods())}, found {', '.join(unknown)}")
    return settings


class StageSettings(Strict):
    """The owner of a stage, and what happens if it fails."""

    owner: str = Field("", max_length=200, description="Who is named if the task fails; empty for the project's owner.")
    on_failure: Literal["stop", "warn"] = Field(
        "stop",
        description="`stop` ends the run; `warn` continues with a warning, and is allowed only if no decision "
        "depends on the task.",
    )
    retries: int | None = Field(
        None, ge=1, le=10, description="How many times it is tried again, if that is safe; null for twice."
    )


PROJECT_FILE = "project.yaml"
_NAME = r"^[a-z][a-z0-9-]{0,39}$"
Name = Annotated[str, StringConstraints(pattern=_NAME)]


class ProjectFile(Strict):
    """The content of `project.yaml`."""

    name: Name = Field(description="Lower-case name; references and spec names begin with it.")
    description: str = Field("", max_length=400, description="What the model predicts; at most 400 characters.")
    store: str = Field(
        ".gatehouse/store",
        description="Where everything is kept: an address, or a folder relative to this file. `--store` overrides it.",
    )
    source: Annotated[SourceSpec, Field(description="Where the raw tables come from.")]
    contract: str = Field("contract.yaml", min_length=1, description="The data contract, relative to this file.")
    baseline: str = Field(
        "", description="Reference of an earlier validation to measure drift against; empty for none."
    )
    snapshots: dict[str, str] = Field(
        {}, description="References of snapshots that the contract's foreign keys point to, by their name there."
    )
    features: FeaturesSpec = Field(description="Where features are defined.")
    split: SplitSpec = Field(description="How rows are divided into train, validation and test.")
    model: Name = Field(description="Name under which models are registered.")
    transformation: TransformationSpec = Field(
        TransformationSpec(), description="How features are transformed, fitted on the train part."
    )
    training: TrainSpec = Field(description="The model and its full budget; tuning overwrites what it searches.")
    launch: Annotated[Launch, Field(description="Where training runs; changes no bit of a model.")] = LocalLaunch()
    engine: Engine = Field(Engine(), description="Where the pieces of a divided stage run; changes no bit of a result.")
    tuning: ExperimentSpec | None = Field(
        None, description="Search space and settings of the experiment; null trains with `training` as it is."
    )
    calibration: CalibrationSpec | None = Field(
        None, description="Calibration that is fitted on the validation part after training; null for none."
    )
    evaluation: EvaluationSpec = Field(description="What is measured.")
    integration: IntegrationSpec | None = Field(
        None, description="Settings of the integration tests of the candidate, before it is judged; null for none."
    )
    policy: str = Field("policy.yaml", min_length=1, description="The promotion policy, relative to this file.")
    monitoring: MonitoringSpec = Field(description="What counts as drift.")
    alerts: When = Field(
        "never", description="Which verdicts and ends of runs are sent to the webhook GATEHOUSE_ALERT_WEBHOOK."
    )
    alert_form: Form = Field(
        "generic", description="Format for the webhook: plain JSON, Slack's blocks, or an adaptive card for Teams."
    )
    events: dict[Name, Destination] = Field({}, description="Webhooks that get what happens, by their name.")
    owner: str = Field("", max_length=200, description="Who is responsible for the project; failure notices name them.")
    schedules: dict[str, Schedule] = Field(
        {}, description="Schedules of recurring runs, by the schedule's name; an empty text is none."
    )
    triggers: dict[Name, Trigger] = Field({}, description="Runs that events start, by the trigger's name.")
    prices: Prices = Field(Prices(), description="Price per hour by type of machine; every run's cost is tracked.")

    resources: dict[str, TaskResources] = Field({}, description="Resources of single tasks, by the stage's name.")

    stages: dict[str, StageSettings] = Field(
        {}, description="Owner and failure policy of single tasks, by the stage's name."
    )

    @field_validator("schedules", mode="before")
    @classmethod
    def _without_empty(cls, body: Any) -> Any:
        return {name: schedule for name, schedule in body.items() if schedule != ""} if isinstance(body, dict) else body

    @field_validator("schedules")
    @classmethod
    def _check_names(cls, schedules: dict[str, Schedule]) -> dict[str, Schedule]:
        if wrong := [name for name in schedules if not re.fullmatch(_NAME, name)]:
            raise ValueError(f"expected names of lower-case letters, digits and hyphens, found {', '.join(wrong)}")
        return schedules

    @field_validator("source")
    @classmethod
    def _has_names_of_columns(cls, source: SourceSpec) -> SourceSpec:
        # This is no rule of the source itself: a first look reads columns without names.
        for name, table in source.tables.items():
            if "" in table.columns:
                raise ValueError(f"tables.{name}.columns: expected names of columns, found ''")
        return source

    @field_validator("resources")
    @classmethod
    def _of_components(cls, resources: dict[str, TaskResources]) -> dict[str, TaskResources]:
        return of_components(resources)

    @field_validator("stages")
    @classmethod
    def _of_stages(cls, stages: dict[str, StageSettings]) -> dict[str, StageSettings]:
        of_components({name: settings for name, settings in stages.items() if settings.retries is not None})
        return of_stages(stages)

    @property
    def owners(self) -> dict[str, str]:
        """Owner of each stage, by stage name; under "" the owner of all other stages."""
        named = {"": self.owner} | {name: settings.owner for name, settings in self.stages.items()}
        return {name: owner for name, owner in named.items() if owner}

    @model_validator(mode="after")
    def _launchable(self) -> "ProjectFile":
        trained = [("training", self.training)]
        if self.tuning is not None:
            problems = infeasible(self.tuning, self.training)  # Parameters that the training's model does not accept.
            refuse(
                "project",
                (
                    (where if where[0] == "training" else ("tuning", *where), why, value)
                    for where, value, why in problems
                ),
            )
            # The training of a trial, before its parameters are chosen.
            trial = configured(self.training, {}, self.tuning.trial_settings)
            trained.append(("tuning.trial_settings", trial))
        for section, spec in trained:
            parallel, name = spec.parallelism, f"{section}.parallelism.processes"
            if problem := division_problem(self.launch, parallel.processes, name):
                raise ValueError(problem)
        return self

    @model_validator(mode="after")
    def _priced(self) -> "ProjectFile":
        if self.tuning is not None and self.tuning.budget.cost is not None and not self.prices.per_hour:
            raise ValueError(
                "tuning.budget.cost: expected the price of a machine under prices.per_hour, found none; add one, as "
                "prices: {per_hour: {default: 1.2}}, or remove the budget"
            )
        return self

    @model_validator(mode="after")
    def _calibratable(self) -> "ProjectFile":
        problems = list(self.calibration.problems(task_of(self.training))) if self.calibration else []
        problems += none_held_out(self.training, self.tuning) if self.calibration else []
        refuse("project", ((("calibration",), problem, None) for problem in problems))
        return self
