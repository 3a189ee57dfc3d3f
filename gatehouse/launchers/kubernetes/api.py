"""The Kubernetes API as the launchers use it: objects as dictionaries, a deadline for each request, and retries."""

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tenacity import RetryCallState, Retrying, retry_if_exception, stop_before_delay, wait_random_exponential

from gatehouse.launchers.launcher import ClusterError

logger = logging.getLogger(__name__)

_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_TRANSIENT = (408, 429, 500, 502, 503, 504)
_GONE = 410
_CONFLICTS = (404, 409, _GONE)
_TOKEN_ATTEMPTS = 3
FIELD_MANAGER = "gatehouse"
"""Owner of the fields that `KubernetesApi.apply` sets."""
_MERGE, _APPLY = "application/merge-patch+json", "application/apply-patch+yaml"


class ApiConflict(Exception):
    """The API answered 404, 409 or 410, with its message. Each request gives that a meaning of its own."""

    def __init__(self, status: int, message: str = "") -> None:
        super().__init__(f"{status} {message}".strip())
        self.status, self.message = status, message


@dataclass(frozen=True)
class ApiTimeouts:
    """How long the launcher waits for the API, in seconds."""

    request: float = 30.0  # for the answer to one request
    retry: float = 300.0  # for the first successful answer when requests fail one after another
    first_pause: float = 0.5  # upper limit of the first pause between two attempts; it doubles every time
    longest_pause: float = 20.0
    resync: float = 5.0  # longest time between two looks at a job
    min_interval: float = 1.0  # shortest time between two looks at a job
    watch: float = 60.0  # after which a watch is opened again
    cleanup: float = 20.0  # for all requests together that remove the job when the launcher must end


class KubernetesApi:
    """Access to one cluster: the pod's, if this runs in a pod, else the kubeconfig's.

    The methods that send a request raise `ApiConflict` for an answer 404, 409 or 410, and `ClusterError` if the request
    is refused or the API does not answer in time.
    """

    def __init__(self, timeouts: ApiTimeouts, kubeconfig: str = "") -> None:
        """Read the credentials of a kubeconfig file, or of the environment."""
        self.timeouts = timeouts
        self._kubeconfig = kubeconfig
        self.namespace, self.in_cluster = "default", False
        self._until = float("inf")
        self._client = self._load()

    def _load(self) -> Any:
        """A client with credentials that are read now. Its own retries are off: docs/decisions/kubernetes-watch.md."""
        from kubernetes import client, config

        configuration = client.Configuration()
        try:
            if not self._kubeconfig and os.environ.get("KUBERNETES_SERVICE_HOST") and _NAMESPACE_FILE.exists():
                config.load_incluster_config(configuration)
                self.namespace, self.in_cluster = _NAMESPACE_FILE.read_text().strip(), True
            else:
                # The client itself looks at KUBECONFIG only when it is imported.
                file = self._kubeconfig or os.environ.get("KUBECONFIG") or None
                config.load_kube_config(file, client_configuration=configuration)
                _, context = config.list_kube_config_contexts(file)
                self.namespace = context["context"].get("namespace", "default")
        except (config.ConfigException, OSError) as error:
            why = str(error).rstrip(".")
            raise ClusterError(
                f"No Kubernetes cluster is configured: {why}. Run in a pod with a service account, or set KUBECONFIG."
            ) from error
        configuration.retries = False
        return client.ApiClient(configuration)

    @contextmanager
    def cleaning_up(self) -> Iterator[None]:
        """In this context all requests together may take `ApiTimeouts.cleanup`."""
        self._until = time.monotonic() + self.timeouts.cleanup
        try:
            yield
        finally:
            self._until = float("inf")

    def get(self, path: str) -> dict[str, Any]:
        """The object at `path`, such as `/apis/<group>/<version>/namespaces/<namespace>/<plural>/<name>`."""
        return self._json("GET", path)

    def list(self, path: str, **selectors: str) -> list[dict[str, Any]]:
        """The objects under `path` that a `labelSelector` or `fieldSelector` chooses."""
        return list(self._json("GET", path, query=selectors).get("items") or [])

    def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Create an object under `path`.

        A field that this release of the object does not know is refused: by default it would be dropped in silence.

        `ApiConflict` with 409 if the name exists: an earlier attempt, whose answer was lost, may have created it.
        """
        return self._json("POST", path, body=body, query={"fieldValidation": "Strict"})

    def patch(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Merge `body` into the object at `path`."""
        return self._json("PATCH", path, body=body)

    def apply(self, path: str, body: dict[str, Any], *, force: bool = False, dry_run: bool = False) -> dict[str, Any]:
        """Create the object at `path`, or give it these fields, and remove those that were applied before and are gone.

        A repeat changes nothing. `ApiConflict` with 409 names the fields that another manager set, unless `force` takes
        them; with `dry_run` the cluster only says what it would answer.
        """
        query = {"fieldManager": FIELD_MANAGER, "force": str(force).lower(), "fieldValidation": "Strict"}
        return self._json("PATCH", path, body=body, query=query | ({"dryRun": "All"} if dry_run else {}))

    def delete(self, path: str, uid: str) -> None:
        """Delete the object at `path` with its pods, if it still has this `uid`."""
        body = {"propagationPolicy": "Background", "preconditions": {"uid": uid}}
        with suppress(ApiConflict):
            self._json("DELETE", path, body=body)

    def text(self, path: str, query: dict[str, Any]) -> str:
        """The text at `path`, such as the log of a pod."""

        def read() -> str:
            return str(self._send("GET", path, query=query).data.decode(errors="replace"))

        return str(self._retrying(read, f"GET {path}"))

    def lines(self, path: str, query: dict[str, Any], silence: float) -> Iterator[bytes]:
        """The lines of a log or a watch as they come, until `silence` seconds without a line; there is no retry.

        A refused request raises the client's `ApiException`.
        """
        import urllib3

        response = self._send("GET", path, query=query, timeout=silence)
        rest = b""
        try:
            for chunk in response.stream(None, decode_content=False):
                *whole, rest = (rest + chunk).split(b"\n")
                yield from whole
        except urllib3.exceptions.HTTPError:
            return
        finally:
            response.close()
        if rest:
            yield rest

    def changes(self, path: str, selector: str, ended: threading.Event) -> Iterator[dict[str, Any]]:
        """The objects under `path` that a label selector chooses: as they are, then after each change, until `ended`.

        The last change of an object is its deletion. A watch that breaks continues where it was, so nothing that comes
        and goes is missed, unless the API has forgotten that moment (410). A watch that is refused ends this.
        """
        from kubernetes.client.exceptions import ApiException

        version, seconds = "", max(1, round(self.timeouts.watch))
        query = {"watch": "true", "labelSelector": selector, "allowWatchBookmarks": "true", "timeoutSeconds": seconds}
        while not ended.is_set():
            try:
                since = {"resourceVersion": version} if version else {}
                for line in self.lines(path, query | since, silence=seconds + self.timeouts.min_interval):
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        version = ""
                        break
                    version = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] != "BOOKMARK":
                        yield event["object"]
            except ApiException as error:
                version = "" if error.status == _GONE else version
                if error.status and error.status not in (401, *_TRANSIENT, *_CONFLICTS):
                    logger.warning(
                        "The cluster refuses to watch %s with HTTP %d (%s): it lists them every %g s instead, "
                        "and may miss some. Give its service account the role of docs/launchers.md.",
                        path.rpartition("/")[2],
                        error.status,
                        error.reason,
                        self.timeouts.resync,
                    )
                    return
            except Exception as error:
                logger.debug("A watch broke: %s", _short(error))
            ended.wait(self.timeouts.min_interval)

    def _json(self, method: str, path: str, **arguments: Any) -> dict[str, Any]:
        def send() -> Any:
            return json.loads(self._send(method, path, **arguments).data)

        return dict(self._retrying(send, f"{method} {path}"))

    def _send(self, method: str, path: str, *, query: Any = None, body: Any = None, timeout: float = 0.0) -> Any:
        headers = {"Accept": "application/json, */*"}
        if body is not None:
            patch = _APPLY if "fieldManager" in (query or {}) else _MERGE
            headers["Content-Type"] = patch if method == "PATCH" else "application/json"
        response = self._client.call_api(
            path,
            method,
            query_params=list((query or {}).items()),
            header_params=headers,
            body=body,
            auth_settings=["BearerToken"],
            _preload_content=False,
            _return_http_data_only=True,
            _request_timeout=(self.timeouts.request, timeout or self.timeouts.request),
        )
        if not timeout:
            response.read(cache_content=True)
        return response

    def _retrying(self, send: Callable[[], Any], what: str) -> Any:
        """Retry until a request succeeds; if a token is refused, read the credentials again."""
        import urllib3
        from kubernetes.client.exceptions import ApiException

        failures = (ApiException, urllib3.exceptions.HTTPError, OSError, ValueError)
        denied = 0

        def is_transient(error: BaseException) -> bool:
            nonlocal denied
            status = _status(error)
            if status == 401 and denied < _TOKEN_ATTEMPTS:
                denied, self._client = denied + 1, self._load()
                return True
            return isinstance(error, failures) and (not status or status in _TRANSIENT)

        def log(state: RetryCallState) -> None:
            error = state.outcome.exception() if state.outcome else None
            logger.info("The cluster's API failed (%s): again in %.1f s.", _short(error), state.upcoming_sleep)

        retrying = Retrying(
            retry=retry_if_exception(is_transient),
            wait=wait_random_exponential(self.timeouts.first_pause, self.timeouts.longest_pause),
            stop=stop_before_delay(min(self._until - time.monotonic(), self.timeouts.retry)),
            before_sleep=log,
            reraise=True,
        )
        try:
            return retrying(send)
        except failures as error:
            status, message = _status(error), _short(error)
            with suppress(ValueError, AttributeError, TypeError, KeyError):
                message = str(json.loads(getattr(error, "body", b""))["message"])
            if status in _CONFLICTS:
                raise ApiConflict(status, message) from error
            if status and status not in _TRANSIENT:
                raise ClusterError(
                    f"The cluster refuses a request of the launcher with HTTP {status}: {message}\nThe "
                    f"request was {what}. 401: log in again; 403: give the launcher's service account the role of "
                    "docs/launchers.md, or docs/deploy.md; 400, 422: the message names the field; an unknown one needs "
                    "a later release of the operator."
                ) from error
            raise ClusterError(
                "The cluster's API does not answer, or answers with errors only.\nThe last was "
                f"{_short(error)} to {what}. Run again when it answers, to find a running job again."
            ) from error


def _status(error: BaseException) -> int:
    """The HTTP status of an answer, 0 for none. An apply of a field that the schema lacks is answered with 500."""
    unknown_field = b"field not declared in schema" in (getattr(error, "body", None) or b"")
    return 422 if unknown_field else int(getattr(error, "status", 0) or 0)


def _short(error: BaseException | None) -> str:
    status = getattr(error, "status", 0)
    return f"HTTP {status} {getattr(error, 'reason', '')}" if status else f"{type(error).__name__}"
