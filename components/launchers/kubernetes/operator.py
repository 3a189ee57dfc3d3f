"""What a training operator is to the launcher: it builds the object of a job, and reads the object's state."""

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
        launch: Identifies this creation of the job. When it is created again after a failure, it has another one.
        digest: Identifies the job's files and its program.
        image: Image of its pods.
        env: Environment of its pods, apart from what the settings say.
        command: What each pod runs.
        processes: Number of workers of each pod.
        deadline_seconds: After so many seconds the operator ends the job, also where its launcher is gone.
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
        """The annotations by which a launcher finds the job again and knows that it trains the same."""
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
        resource: Where its objects are, `<group>/<version>/namespaces/{namespace}/<plural>` below `/apis`.
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
        """How a job ended, read from its object; None where it has not ended."""


def condition(found: dict[str, Any], kind: str) -> dict[str, Any] | None:
    """The condition of type `kind` of an object, if its status is True. One with status False says nothing happened."""
    conditions = found.get("status", {}).get("conditions") or []
    return next((each for each in conditions if each["type"] == kind and each["status"] == "True"), None)
