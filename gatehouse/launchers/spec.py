"""The settings of a launcher: where and how a training job runs. They never change the model."""

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from gatehouse.launchers.launcher import HANG_SECONDS, QUEUE_MINUTES, SCHEDULING_MINUTES
from gatehouse.runtime.variables import CREDENTIALS, SETTINGS
from gatehouse.store.identity import Spec, operational

_NAME = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
_MEMORY = r"^[1-9][0-9]*(Ki|Mi|Gi|Ti)$"


class _Launch(Spec):
    hang_seconds: float = operational(
        HANG_SECONDS,
        gt=0,
        description="How long a rank may make no progress. Starting and fetching a checkpoint count as one step each.",
    )
    machine: str = operational("", description="Type of machine, as `prices.per_hour` names it; for the cost of a run.")


class LocalLaunch(_Launch):
    """Settings for torchrun on the machine of the train task."""

    kind: Literal["local"] = "local"
    max_restarts: int = operational(
        3, ge=0, description="How many times a preempted job is restarted from its last checkpoint."
    )


class Resources(Spec):
    """Requests and limits of each node, that is each pod."""

    cpu: str = Field("2", pattern=r"^[0-9]+(\.[0-9]+|m)?$")
    memory: str = Field("4Gi", pattern=_MEMORY)
    gpus: int = Field(0, ge=0, description="How many of the resource named by `gpu`.")
    gpu: str = "nvidia.com/gpu"


class Toleration(Spec):
    """A toleration of a taint by the pods."""

    key: str
    operator: Literal["Exists", "Equal"] = "Exists"
    value: str = ""
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = ""


class FromSecret(Spec):
    """An environment variable whose value is in a secret or a config map."""

    variable: str
    source: Literal["secret", "config_map"] = "secret"
    name: str = Field(pattern=_NAME)
    key: str
    optional: bool = True


class Volume(Spec):
    """A persistent volume claim that is mounted in every pod."""

    claim: str = Field(pattern=_NAME)
    path: str = Field(pattern="^/")
    read_only: bool = False


STORE_SECRETS = (
    FromSecret(variable="AWS_ENDPOINT_URL", source="config_map", name=SETTINGS, key="aws-endpoint-url"),
    FromSecret(variable="AWS_DEFAULT_REGION", source="config_map", name=SETTINGS, key="aws-region"),
    FromSecret(variable="AWS_ACCESS_KEY_ID", name=CREDENTIALS, key="aws-access-key-id"),
    FromSecret(variable="AWS_SECRET_ACCESS_KEY", name=CREDENTIALS, key="aws-secret-access-key"),
)


class ClusterLaunch(_Launch):
    """Settings of every job on a cluster."""

    namespace: str = operational("", description="Empty for the launcher's own.")
    image: str = operational(
        "",
        description="With the digest for a release; empty for the platform's `training`, or `training-gpu` with GPUs.",
    )
    nodes: int = operational(
        1, ge=1, le=1024, description="Pods; `training.parallelism.processes` is divided among them."
    )
    min_nodes: int = operational(
        0,
        ge=0,
        description="The fewest nodes with which a script of `launch` goes on if others are lost; 0 for all. `train` "
        "refuses it, as the bits of a model depend on the number of processes.",
    )
    resources: Resources = operational(Resources())
    shared_memory: str = operational("1Gi", pattern=_MEMORY, description="Size of /dev/shm, part of the pod's memory.")
    node_selector: dict[str, str] = operational({})
    tolerations: tuple[Toleration, ...] = operational(())
    queue: str = operational("", description="Kueue's local queue; empty for none.")
    queue_priority: str = operational("", description="Kueue's workload priority class.")
    service_account: str = operational("")
    env: dict[str, str] = operational({})
    secrets: tuple[FromSecret, ...] = operational(STORE_SECRETS)
    pull_secrets: tuple[str, ...] = operational(())
    volumes: tuple[Volume, ...] = operational(())
    labels: dict[str, str] = operational({})
    annotations: dict[str, str] = operational({})
    grace_seconds: int = operational(
        120, ge=5, description="Time from a pod's SIGTERM to its SIGKILL, in which it writes a checkpoint."
    )
    scheduling_minutes: float = operational(
        SCHEDULING_MINUTES,
        gt=0,
        description="How long the pods may wait to start; then the job is deleted; by default a day with a `queue`. "
        "The time limit of the training counts separately.",
    )
    image_pull_minutes: float = operational(
        5.0, ge=0, description="How long an image may fail to be pulled; then the job ends."
    )
    store: str = operational(
        "", description="The store's address as pods see it; empty if it is the same as the launcher's."
    )

    @property
    def needed_nodes(self) -> int:
        """Pods that must run for the job to run."""
        return self.min_nodes or self.nodes

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min_nodes > self.nodes:
            raise ValueError(f"min_nodes: expected at most nodes={self.nodes}, found {self.min_nodes}")
        return self

    @model_validator(mode="before")
    @classmethod
    def _no_nulls(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        given = {key: value for key, value in data.items() if value is not None}
        return {"scheduling_minutes": QUEUE_MINUTES} | given if given.get("queue") else given


class RunPolicy(Spec):
    """How the Training Operator handles a job as a whole."""

    backoff_limit: int = Field(3, ge=0, description="How often a pod may start again before the job has failed.")


class PyTorchJobLaunch(ClusterLaunch):
    """A PyTorchJob of the Kubeflow Training Operator v1, which gets corrections only."""

    kind: Literal["pytorchjob"]
    run_policy: RunPolicy = operational(RunPolicy())
    priority: str = operational("", description="Kubernetes' priority class.")
    gang: Literal["", "volcano", "coscheduling"] = operational("", description="All pods are placed at once, or none.")

    @property
    def restarts(self) -> int | None:
        """How often a pod may restart before the job fails; the operator does not count pods that it creates anew."""
        return self.run_policy.backoff_limit


class TrainJobLaunch(ClusterLaunch):
    """A TrainJob of Kubeflow Trainer v2. Its runtime decides restarts, gang and priority class."""

    kind: Literal["trainjob"] = "trainjob"
    runtime: str = operational("torch-distributed", pattern=_NAME, description="Name of the training runtime.")
    runtime_kind: Literal["ClusterTrainingRuntime", "TrainingRuntime"] = operational("ClusterTrainingRuntime")

    @property
    def restarts(self) -> int | None:
        """None: the runtime decides."""
        return None


Launch = Annotated[
    LocalLaunch | TrainJobLaunch | PyTorchJobLaunch,
    Field(discriminator="kind"),
    BeforeValidator(lambda settings: {"kind": "trainjob"} | settings if isinstance(settings, dict) else settings),
]
"""Settings without a `kind` are those of a TrainJob."""


class CommandSpec(Spec):
    """A command, and how it runs."""

    command: tuple[str, ...] = Field(min_length=1, description="Program and arguments; no shell reads them.")
    environment: dict[str, str] = Field({}, description="Environment variables of the command.")
    processes: int = Field(1, ge=1, description="Processes on all nodes together; several run under torchrun.")
    image: str = Field("", description="Image of a cluster's pods; empty for that of the platform.")
    restarts: int = operational(3, ge=0, description="How often it starts again after a process was killed or failed.")
    timeout_minutes: float = operational(480.0, gt=0, description="The time limit of the command.")
    launch: Launch = operational(LocalLaunch())


def division_problem(launch: Launch, processes: int, name: str) -> str:
    """The problem if a training of a number of processes, the setting `name`, cannot run like this; empty if it can."""
    if isinstance(launch, LocalLaunch):
        return ""
    if launch.min_nodes:
        return (
            f"launch.min_nodes={launch.min_nodes}: expected 0, as the bits of a model depend on the number of its "
            f"processes, {name}={processes}. Remove it; a script of the component launch may have it."
        )
    if processes % launch.nodes:
        return (
            f"launch.nodes={launch.nodes}: expected a divisor of {name}={processes}, because every node runs as many. "
            "Change one of them."
        )
    return ""
