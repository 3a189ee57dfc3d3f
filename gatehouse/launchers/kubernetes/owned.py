"""One object of a cluster that runs a job: who owns it, and how it ended."""

import logging
import os
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from gatehouse.errors import LauncherError
from gatehouse.launchers.kubernetes.api import ApiConflict, KubernetesApi
from gatehouse.launchers.launcher import ClusterError, TrainingCancelledError

logger = logging.getLogger(__name__)

LAUNCH = "gatehouse.dev/launch"
JOB_DIGEST = "gatehouse.dev/job"
LAUNCHER = "gatehouse.dev/launcher"
PROGRESS = "gatehouse.dev/progress"
MANAGED = {"app.kubernetes.io/managed-by": "gatehouse"}


class OwnedJob:
    """One object of an operator.

    An annotation of the object names its owner: the launcher that created it or found it last. Only the owner deletes
    it.
    """

    def __init__(self, api: KubernetesApi, path: str, name: str, digest: str) -> None:
        """Prepare to find or create the job."""
        self._api, self.path, self.name, self.digest = api, path, name, digest
        self.uid = ""
        self.namespace = path.split("/")[-2]
        self._owner = uuid.uuid4().hex

    def find(self) -> dict[str, Any] | None:
        """The job, taken over from its earlier launcher; None if there is none.

        If the earlier launcher has deleted the job, this waits until the object is gone.
        """
        until = time.monotonic() + self._api.timeouts.retry
        while (job := self._get()) is not None:
            metadata = job["metadata"]
            if metadata.get("annotations", {}).get(JOB_DIGEST) != self.digest:
                raise ClusterError(
                    "Another job has the name of this one.\n"
                    f"{self.path}/{self.name} does not have the annotation {JOB_DIGEST}={self.digest}. Delete it."
                )
            if "deletionTimestamp" not in metadata:
                self.uid = metadata["uid"]
                logger.info("Found the job %s again: watching it.", self.name)
                # Its owner in the cluster is the earlier launcher's pod, and it would be deleted with that pod.
                self._patch({"annotations": {LAUNCHER: self._owner}} | self._owner_reference())
                return job
            if time.monotonic() > until:
                raise ClusterError(
                    f"The job of an earlier launch is still being deleted.\n{self.path}/{self.name} was deleted at "
                    f"{metadata['deletionTimestamp']}, and waits for its finalizers {metadata.get('finalizers', [])}. "
                    "Find out why they are not removed, and run again."
                )
            time.sleep(self._api.timeouts.min_interval)
        return None

    def create(self, body: dict[str, Any]) -> dict[str, Any]:
        """Create the job, or use the one that an earlier attempt of this call created if its answer was lost."""
        metadata = body["metadata"]
        metadata |= {"annotations": metadata["annotations"] | {LAUNCHER: self._owner}} | self._owner_reference()
        try:
            job = self._api.create(self.path, body)
        except ApiConflict as conflict:
            if conflict.status != 404 and (existing := self.find()):
                return existing
            raise ClusterError(
                f"The cluster refused the {body['kind']} with HTTP {conflict.status}. 404: its operator is not "
                f"installed, or there is no such namespace; else run again.\nThe request was POST {self.path}."
            ) from conflict
        self.uid = job["metadata"]["uid"]
        logger.info("Created the %s %s.", body["kind"], self.name)
        return job

    def current(self) -> dict[str, Any]:
        """The job as it is now; raises `TrainingCancelledError` if it was deleted."""
        job = self._get()
        if job is None or job["metadata"]["uid"] != self.uid or "deletionTimestamp" in job["metadata"]:
            raise TrainingCancelledError(
                f"Training was cancelled: its job was deleted while it ran.\nThe job was {self.path}/{self.name}. Run "
                "again to start it anew, from its last checkpoint."
            )
        return job

    def save_progress(self, progress: str) -> None:
        """Write on the job the state that a later launcher needs."""
        self._patch({"annotations": {PROGRESS: progress}})

    def delete(self) -> None:
        """Delete the job and its pods, if it exists and no other launcher has taken it over.

        If the cluster does not answer, a warning says what remains.
        """
        try:
            with self._api.cleaning_up():
                job = self._get()
                if job is not None and job["metadata"].get("annotations", {}).get(LAUNCHER) == self._owner:
                    self._api.delete(f"{self.path}/{self.name}", job["metadata"]["uid"])
        except LauncherError as error:
            logger.warning("%s/%s could not be deleted, delete it by hand: %s", self.path, self.name, error)

    def _get(self) -> dict[str, Any] | None:
        try:
            return self._api.get(f"{self.path}/{self.name}")
        except ApiConflict:
            return None

    def _patch(self, metadata: dict[str, Any]) -> None:
        with suppress(ApiConflict):
            self._api.patch(f"{self.path}/{self.name}", {"metadata": metadata})

    def _owner_reference(self) -> dict[str, Any]:
        """This pod as the owner of the job, if this is a pod in the namespace of the job."""
        name, uid = os.environ.get("KFP_POD_NAME", ""), os.environ.get("KFP_POD_UID", "")
        if not uid or self.namespace != self._api.namespace:
            return {}
        return {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}]}


@dataclass(frozen=True)
class JobEnd:
    """How a job ended: reason (one word) and message of the object's condition."""

    succeeded: bool
    reason: str
    message: str


def job_end(job: dict[str, Any], success: str) -> JobEnd | None:
    """How a job ended; None if it has not ended. A condition with status False has not happened."""
    conditions = job.get("status", {}).get("conditions") or []
    for kind in ("Failed", success):
        for condition in conditions:
            if condition["type"] == kind and condition["status"] == "True":
                return JobEnd(kind == success, condition.get("reason", ""), condition.get("message", ""))
    return None
