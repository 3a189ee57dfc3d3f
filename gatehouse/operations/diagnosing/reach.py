"""Checks with their results: whether the store and MLflow answer from here, and the store keeps its promise.

The promise is that of several writers to a new name exactly one wins. Every store in the cloud documents it, but not
every S3-compatible server keeps it under load, so real writers race for it.
"""

import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

from gatehouse.errors import GatehouseError, StoreError
from gatehouse.runtime.redaction import error_text, holds_password, public_address
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.mlflow_client import require_server, tracking_of
from gatehouse.tracking.place import URI

_TIMEOUT = 10.0
_WRITERS, _ROUNDS = 8, 5


@dataclass(frozen=True)
class Finding:
    """The result of one check: what was `observed`, or why nothing could be, and what to do.

    If the pipelines do not need it, an unchecked result is no problem.
    """

    check: str
    outcome: Literal["passed", "failed", "not checked"]
    observed: str
    advice: str = ""
    needed: bool = True

    @property
    def well(self) -> bool:
        """Whether nothing needs to be done."""
        return self.outcome == "passed" or (self.outcome == "not checked" and not self.needed)


def passed(check: str, observed: str) -> Finding:
    """The result of a check that passed."""
    return Finding(check, "passed", observed)


def failed(check: str, observed: str, advice: str) -> Finding:
    """The result of a check that failed."""
    return Finding(check, "failed", observed, advice)


def unchecked(check: str, why: str, advice: str = "", *, needed: bool = True) -> Finding:
    """The result of a check that could not be made."""
    return Finding(check, "not checked", why, advice, needed)


def looked(check: str, look: Callable[[], str], advice: str) -> Finding:
    """The result of `look`, which returns what it found; a GatehouseError is a failure with its first line."""
    try:
        return passed(check, look())
    except GatehouseError as error:
        return failed(check, " ".join(str(error).split())[:400], advice)


def store_finding(address: str) -> Finding:
    """Check that a store can be written and read, and that of racing writers to a new name exactly one wins.

    Each writer is a thread with a client of its own, and its bytes are its number. A later write is also refused.
    """

    def look() -> str:
        clients = [ArtifactStore.open(address).objects for _ in range(_WRITERS)]
        folder, kept = f"doctor/{uuid.uuid4().hex}", ""
        with ThreadPoolExecutor(_WRITERS) as pool:
            for number in range(_ROUNDS):
                key, start = f"{folder}/{number}.json", threading.Barrier(_WRITERS)

                def write(writer: int, key: str = key, start: threading.Barrier = start) -> bool:
                    start.wait()
                    return clients[writer].put_bytes(key, b"%d" % writer)

                won = [writer for writer, wins in enumerate(pool.map(write, range(_WRITERS))) if wins]
                again = clients[0].put_bytes(key, b"again")
                content, stat = clients[0].get_bytes(key), clients[0].stat(key)
                if stat is None or not clients[0].delete(key, stat.generation):
                    kept = f"; {folder} stays"
                if len(won) != 1 or again or content != b"%d" % won[0]:
                    raise StoreError(
                        f"{address} does not keep create-only writes: of {_WRITERS} racing writers {len(won)} won, "
                        f"expected one and its bytes; found {content!r}, and a later write was "
                        f"{'taken' if again else 'refused'}"
                    )
        return f"{address} was written and read, and of {_WRITERS} racing writers one won, {_ROUNDS} times{kept}"

    return looked(
        "store",
        look,
        "Check the address and the credentials. A store must honour create-only writes (If-None-Match on S3, "
        "generation preconditions on Google Cloud Storage): without them two runs write over each other.",
    )


def mlflow_finding(uri: str) -> Finding:
    """Check that an MLflow server answers; without an address the check is not made."""
    import requests

    if not uri.startswith(("http://", "https://")):
        return unchecked(
            "MLflow", public_address(uri) or "no server is named", "Set mlflow-tracking-uri.", needed=False
        )
    advice = "Start the server, or name another; until then nobody sees the runs."
    try:
        require_server(uri)
        status = requests.get(f"{public_address(uri).rstrip('/')}/health", timeout=_TIMEOUT).status_code
    except GatehouseError as error:
        return failed("MLflow", " ".join(str(error).split())[:400], advice)
    except requests.RequestException as error:
        return failed("MLflow", f"{public_address(uri)}: {type(error).__name__}", advice)
    # A server that asks for credentials accepts the token of the pods, which this machine may not have.
    if status < 400 or status in (401, 403):
        return passed("MLflow", f"{public_address(uri)} answers with {status}")
    return failed("MLflow", f"{public_address(uri)} answers with {status}", "Expected an MLflow server there.")


def tracking_finding(store: ArtifactStore) -> Finding:
    """Check that MLflow answers with the credentials that the runs of this store use."""
    tracking = tracking_of(store)
    if tracking is None or tracking.embedded:
        return unchecked("MLflow", "no server is named here", needed=False)
    try:
        with tracking.client() as client:
            client.search_experiments(max_results=1)
    except Exception as error:  # MLflow and requests raise many types; with any of them runs cannot be shown.
        advice = "Check mlflow-tracking-uri in the config map, and mlflow-tracking-token in the secret."
        return failed("MLflow", error_text(error, holds_password(tracking.uri))[:400], advice)
    below = " below KFP's run of this task" if tracking.task else ""
    return passed("MLflow", f"{public_address(tracking.uri) or URI} lets runs be seen{below}")
