"""A driver as a job of a running Ray cluster, through Ray's Jobs API, which needs no package of Ray here."""

import json
import os
import shlex
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from gatehouse.errors import PieceError
from gatehouse.pieces.engine import Engine

_TOKEN = "RAY_AUTH_TOKEN"
_SECONDS, _ATTEMPTS = 10.0, 6


class RayClusterJob:
    """The job of a stage: its id follows from the run and the stage."""

    lasting = True

    def __init__(self, engine: Engine, name: str) -> None:
        """Prepare to send a job to `engine.address`."""
        self._address, self._name = engine.address.rstrip("/"), name
        self.engine = engine.model_copy(update={"address": ""})

    def find(self) -> str:
        """See `Place`; a job that has ended is removed."""
        job = self._job()
        if job and job["status"] in ("PENDING", "RUNNING"):
            return str(job["metadata"]["launch"])
        if job:
            self._ask("DELETE", self._name)
        return ""

    def start(self, launch: str, command: Sequence[str], pieces: int) -> None:
        """See `Place`."""
        about = {"submission_id": self._name, "metadata": {"launch": launch}}
        self._ask("POST", "", about | {"entrypoint": shlex.join(command)})

    def has_ended(self) -> bool:
        """See `Place`."""
        job = self._job()
        if job and job["status"] in ("PENDING", "RUNNING", "SUCCEEDED"):
            return bool(job["status"] == "SUCCEEDED")
        how = f"{job['status']}: {' '.join(str(job.get('message')).split())[:500]}" if job else "gone"
        raise PieceError(
            f"Ray at {self._address} did not finish the pieces: the job {self._name} is {how}. Give the cluster the "
            "image of the task, and run again: pieces that were finished are kept."
        )

    def remove(self) -> None:
        """See `Place`."""
        with suppress(PieceError):
            self._ask("POST", f"{self._name}/stop", attempts=1)

    def _job(self) -> dict[str, Any]:
        return self._ask("GET", self._name)

    def _ask(self, method: str, path: str, body: object = None, attempts: int = _ATTEMPTS) -> dict[str, Any]:
        """The answer of the API; empty if there is no such job. What may pass is tried again for a minute."""
        headers = {"Content-Type": "application/json"}
        if token := os.environ.get(_TOKEN):
            headers["Authorization"] = f"Bearer {token}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self._address}/api/jobs/{path}", data, headers, method=method)
        problem = ""
        for attempt in range(attempts):
            try:
                with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
                    return dict(json.loads(answer.read() or b"{}") or {})
            except urllib.error.HTTPError as error:
                if error.code == 404:
                    return {}
                problem = f"HTTP {error.code}: {' '.join(error.read().decode(errors='replace').split())[:300]}"
                if error.code < 500:
                    break
            except (OSError, ValueError) as error:
                problem = str(error)
            if attempt < attempts - 1:
                time.sleep(_SECONDS)
        raise PieceError(
            f"engine: expected the Jobs API of a Ray cluster at {self._address} that accepts this task, found: "
            f"{problem}. Correct engine.address, and where the cluster authenticates, give the task its token "
            f"({_TOKEN})."
        )
