"""The interface of training operators: builds the object of a job, and reads its state."""

from dataclasses import dataclass
from typing import Any, Protocol

LAUNCH = "gatehouse.dev/launch"
JOB_DIGEST = "gatehouse.dev/job"
LAUNCHER = "gatehouse.dev/launcher"
PROGRESS = "gatehouse.dev/progress"
MANAGED = {"app.kubernetes.io/managed-by": "gatehouse"}


@dataclass(frozen=True)
class ClusterJob:
    """One job for a cluster.

    Attributes:
        name: Name of the object.
        namespace: Where the object is created.
        launch: Identifies this creation of the job. A job that is created again after a failure gets a new one.
        digest: Identifies the job's files and its program.
        image: Image of its pods.
        env: Environment of its pods, without the variables from the settings.
        command: Command of each pod.
        processes: Number of workers per pod.
        deadline_seconds: After this time the operator ends the job, even without its launcher.
    """

    name: str
    namespace: str
    launch: str
    digest: str
    image: str
    env: dict[str, str]
    command: tuple[str, ...]
    processes: int
    deadline_seconds: int

    @property
    def annotations(self) -> dict[str, str]:
        """The annotations by which a launcher finds the job again and checks that it trains the same."""
        return {LAUNCH: self.launch, JOB_DIGEST: self.digest}


@dataclass(frozen=True)
class JobEnd:
    """How a job ended, as its object says.

    Attributes:
        succeeded: Whether it succeeded.
        reason: The reason in the object's condition, one word.
        message: The message in the object's condition.
    """

    succeeded: bool
    reason: str
    message: str


class Operator(Protocol):
    """One kind of object that trains.

    Attributes:
        kind: Name of the kind.
        resource: Path of its objects below `/apis`: `<group>/<version>/namespaces/{namespace}/<plural>`.
        container: Name of the container that trains.
    """

    kind: str
    resource: str
    container: str

    def build(self, job: ClusterJob) -> dict[str, Any]:
        """The object of a job, as it is sent to the API."""

    def pod_labels(self, name: str) -> dict[str, str]:
        """The labels that all pods of the job `name` have, and no others."""

    def end(self, found: dict[str, Any]) -> JobEnd | None:
        """How a job ended, from its object; None if it has not ended."""


def condition(found: dict[str, Any], kind: str) -> dict[str, Any] | None:
    """The condition of type `kind`, if its status is True; a condition with status False has not happened."""
    conditions = found.get("status", {}).get("conditions") or []
    return next((each for each in conditions if each["type"] == kind and each["status"] == "True"), None)
