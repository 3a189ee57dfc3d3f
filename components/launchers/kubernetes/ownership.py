"""A launcher's claim on one job of the cluster: made or found again, and given up by deleting the job."""

import logging
import os
import time
import uuid
from contextlib import suppress
from typing import Any

from gatehouse.components.launchers.kubernetes.api import ApiConflict, KubernetesApi
from gatehouse.components.launchers.kubernetes.operator import COURSE, JOB_DIGEST, LAUNCHER
from gatehouse.components.launchers.launcher import ClusterError, TrainingCancelledError
from gatehouse.errors import LauncherError

logger = logging.getLogger(__name__)

_POD_NAME, _POD_UID = "KFP_POD_NAME", "KFP_POD_UID"


class Claim:
    """The object `name` below `path`, if its annotation says that it trains what `digest` names.

    Another annotation names the claim that holds now: the last that made or found the job. Only that one deletes it.
    """

    def __init__(self, api: KubernetesApi, path: str, name: str, digest: str) -> None:
        self._api, self.path, self.name, self.digest = api, path, name, digest
        self.uid = ""
        self.namespace = path.split("/")[-2]
        self._mark = uuid.uuid4().hex

    def find(self) -> dict[str, Any] | None:
        """The job, taken over from the launcher that created it; None where there is none.

        Raises:
            ClusterError: if an object of this name trains something else.
        """
        while (found := self._get()) is not None:
            if found["metadata"].get("annotations", {}).get(JOB_DIGEST) != self.digest:
                raise ClusterError(
                    "Another job has the name of this one.\n"
                    f"{self.path}/{self.name} does not have the annotation {JOB_DIGEST}={self.digest}. Delete it."
                )
            if "deletionTimestamp" not in found["metadata"]:
                self.uid = found["metadata"]["uid"]
                logger.info("Found the job %s again: watching it.", self.name)
                # Its owner was the launcher before, whose pod may go at any time, and the job with it.
                self._patch({"annotations": {LAUNCHER: self._mark}} | self._owned())
                return found
            time.sleep(self._api.pace.shortest)  # The launcher before this one has deleted it: wait until it is gone.
        return None

    def create(self, body: dict[str, Any]) -> dict[str, Any]:
        """Create the job. Where an attempt that seemed to fail had created it, take that one.

        Raises:
            ClusterError: if the cluster does not take it.
        """
        metadata = body["metadata"]
        metadata |= {"annotations": metadata["annotations"] | {LAUNCHER: self._mark}} | self._owned()
        until = time.monotonic() + self._api.pace.patience
        while True:
            try:
                made = self._api.create(self.path, body)
            except ApiConflict as conflict:
                if conflict.status == 404:
                    raise ClusterError(
                        f"The cluster knows no {body['kind']} here: its operator is not installed, or there is no such "
                        f"namespace.\nThe request was POST {self.path}."
                    ) from conflict
                if found := self.find():
                    return found
                if time.monotonic() > until:
                    raise ClusterError(
                        f"The cluster does not take the job: it answers HTTP {conflict.status}, and has none of its "
                        f"name.\nThe request was POST {self.path}. Run again."
                    ) from conflict
                time.sleep(self._api.pace.shortest)
            else:
                self.uid = made["metadata"]["uid"]
                logger.info("Created the %s %s.", body["kind"], self.name)
                return made

    def current(self) -> dict[str, Any]:
        """The job as it is now.

        Raises:
            TrainingCancelledError: if somebody deleted it.
        """
        found = self._get()
        if found is None or found["metadata"]["uid"] != self.uid or "deletionTimestamp" in found["metadata"]:
            raise TrainingCancelledError(
                f"Training was cancelled: its job was deleted while it ran.\nThe job was {self.path}/{self.name}. Run "
                "again to start it anew, from its last checkpoint."
            )
        return found

    def remember(self, course: str) -> None:
        """Write on the job what the next launcher that finds it must know."""
        self._patch({"annotations": {COURSE: course}})

    def withdraw(self) -> None:
        """Delete the job and its pods, if it is there and no other launcher has taken it over.

        Where the cluster does not answer, say what is left behind.
        """
        try:
            with self._api.hurried():
                found = self._get()
                if found is not None and found["metadata"].get("annotations", {}).get(LAUNCHER) == self._mark:
                    self._api.delete(f"{self.path}/{self.name}", found["metadata"]["uid"])
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

    def _owned(self) -> dict[str, Any]:
        """The job's owner: this pod, where it is one, and of the job's namespace."""
        name, uid = os.environ.get(_POD_NAME, ""), os.environ.get(_POD_UID, "")
        if not uid or self.namespace != self._api.namespace:
            return {}
        return {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}]}
