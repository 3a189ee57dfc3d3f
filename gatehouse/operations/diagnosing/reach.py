"""Checks whether the store and MLflow answer from here, and whether the store refuses to overwrite."""

import uuid
from urllib.error import HTTPError
from urllib.request import urlopen

from gatehouse.errors import StoreError
from gatehouse.operations.diagnosing.finding import Finding, failed, looked, passed, unchecked
from gatehouse.runtime.redaction import holds_password, said, shown
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.kfp_task import URI
from gatehouse.tracking.mlflow_client import require_server, tracking_of

_TIMEOUT = 10.0


def store_finding(address: str) -> Finding:
    """Check that a store can be written and read, and refuses to overwrite an object."""

    def look() -> str:
        store = ArtifactStore.open(address)
        key, first = f"doctor/{uuid.uuid4().hex}.json", b'{"first": true}'
        created = store.objects.put_bytes(key, first)
        again = store.objects.put_bytes(key, b'{"first": false}')
        read, stat = store.objects.get_bytes(key), store.objects.stat(key)
        removed = stat is not None and store.objects.delete(key, stat.generation)
        if not created or again or read != first:
            raise StoreError(
                f"{address} does not support create-only writes: expected that the first of two writes to a new name "
                f"is taken and the second refused; found that the first was {'taken' if created else 'refused'}, the "
                f"second {'taken' if again else 'refused'}, and the {'first' if read == first else 'second'} was kept"
            )
        return f"{address} was written and read, and refused a second write" + ("" if removed else f"; {key} stays")

    return looked(
        "store",
        look,
        "Check the address and the credentials. A store must honour create-only writes (If-None-Match on S3, "
        "generation preconditions on Google Cloud Storage): without them two runs write over each other.",
    )


def mlflow_finding(uri: str) -> Finding:
    """Check that an MLflow server answers; without an address the check is not made."""
    if not uri.startswith(("http://", "https://")):
        return unchecked("MLflow", shown(uri) or "no server is named", "Set mlflow-tracking-uri.", needed=False)

    def look() -> str:
        require_server(uri)
        return f"{shown(uri)} answers"

    found = looked("MLflow", look, "Start the server, or name another; until then nobody sees the runs.")
    if found.outcome != "passed":
        return found
    try:
        with urlopen(f"{shown(uri).rstrip('/')}/health", timeout=_TIMEOUT) as answer:
            return passed("MLflow", f"{shown(uri)} answers with {answer.status}")
    except HTTPError as error:
        # A server that asks for credentials accepts the token of the pods, which this machine may not have.
        if error.code in (401, 403):
            return passed("MLflow", f"{shown(uri)} answers, and asks who is there ({error.code})")
        return failed("MLflow", f"{shown(uri)} answers with {error.code}", "Expected an MLflow server there.")
    except OSError as error:
        return failed("MLflow", f"{shown(uri)}: {error}", "Expected an MLflow server there.")


def tracking_finding(store: ArtifactStore) -> Finding:
    """Check that MLflow answers with the credentials that the runs of this store use."""
    tracking = tracking_of(store)
    if tracking is None or tracking.embedded:
        return unchecked("MLflow", "no server is named here", needed=False)
    try:
        with tracking.client() as client:
            client.search_experiments(max_results=1)
    except Exception as error:  # MLflow and requests raise many types; with any of them runs cannot be shown.
        told = said(error, holds_password(tracking.uri))[:400]
        return failed("MLflow", told, "Check mlflow-tracking-uri and mlflow-tracking-token of config map and secret.")
    below = " below KFP's run of this task" if tracking.task else ""
    return passed("MLflow", f"{shown(tracking.uri) or URI} lets runs be seen{below}")
