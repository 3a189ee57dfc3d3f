"""What an operator is: it turns a job into an object of its kind, and reads that object's state."""

from dataclasses import dataclass
from typing import Any, Protocol

LAUNCH = "gatehouse.dev/launch"
JOB_DIGEST = "gatehouse.dev/job"
LAUNCHER = "gatehouse.dev/launcher"
COURSE = "gatehouse.dev/course"
MANAGED = {"app.kubernetes.io/managed-by": "gatehouse"}


@dataclass(frozen=True)
class Order:
    """One job for a cluster.

    Attributes:
        name: Of the object.
        namespace: Where it is created.
        launch: Names this creation of it; another one after a failure has another.
        digest: Names its files and the program.
        image: Of its pods.
        env: Environment of its pods that says what they are.
        command: What each pod runs.
        processes: Workers of each pod.
        deadline_seconds: After which the operator ends the job even if its launcher is gone.
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
        """By which a launcher finds its job again, and knows that it is its own."""
        return {LAUNCH: self.launch, JOB_DIGEST: self.digest}


@dataclass(frozen=True)
class Ended:
    """How a job ended, as its object says.

    Attributes:
        succeeded: Whether it did.
        reason: The operator's word for it.
        message: The operator's sentence.
    """

    succeeded: bool
    reason: str
    message: str


class Operator(Protocol):
    """One kind of object that trains."""

    kind: str
    resource: str  # `<group>/<version>/{namespace}/<plural>` below /apis.
    container: str  # Name of the container that trains.

    def build(self, order: Order) -> dict[str, Any]:
        """The object, as it is sent to the API."""

    def pods(self, name: str) -> dict[str, str]:
        """Labels that all pods of the job have, and no others."""

    def ended(self, job: dict[str, Any]) -> Ended | None:
        """How the job ended, or None where it has not."""


def condition(job: dict[str, Any], kind: str) -> dict[str, Any] | None:
    """The condition of this type, where it holds: one whose status is False says nothing happened."""
    conditions = job.get("status", {}).get("conditions") or []
    return next((each for each in conditions if each["type"] == kind and each["status"] == "True"), None)
