"""The Kubernetes API as the launchers use it: plain objects, every request with a deadline, and patient retries."""

import json
import logging
import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gatehouse.components.launchers.launcher import ClusterError

logger = logging.getLogger(__name__)

_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_TRANSIENT = (408, 429, 500, 502, 503, 504)
_CONFLICTS = (404, 409, 410)
_TOKENS = 4


class ApiConflict(Exception):
    """The API answered 404, 409 or 410: the caller knows what that means."""

    def __init__(self, status: int) -> None:
        super().__init__(str(status))
        self.status = status


@dataclass(frozen=True)
class Pace:
    """How patient the launcher is with the API, in seconds.

    Attributes:
        request: Longest wait for an answer.
        patience: Longest time of failing requests, one after another.
        first: Upper bound of the first pause between attempts; each next bound is twice as long.
        longest: Upper bound of every pause.
        resync: Longest time between two looks at job and pods; in between a watch tells what changes.
        shortest: Shortest time between two looks.
        cleanup: How long the deletion of the job is tried when the launcher is told to end.
    """

    request: float = 30.0
    patience: float = 300.0
    first: float = 0.5
    longest: float = 20.0
    resync: float = 15.0
    shortest: float = 1.0
    cleanup: float = 20.0


class KubernetesApi:
    """Access to one cluster: the one of the pod that this runs in, else the one that the kubeconfig names."""

    def __init__(self, pace: Pace, kubeconfig: str = "") -> None:
        """Read the credentials.

        Raises:
            ClusterError: if this is neither a pod nor a machine with a kubeconfig.
        """
        self.pace = pace
        self._kubeconfig = kubeconfig
        self.namespace = "default"
        self._until = float("inf")
        self._refused_watches: set[int] = set()
        self._client = self._load()

    def _load(self) -> Any:
        """A client with fresh credentials. Its own retries are off: they know neither 429 nor an expired token."""
        from kubernetes import client, config

        configuration = client.Configuration()
        try:
            if not self._kubeconfig and os.environ.get("KUBERNETES_SERVICE_HOST") and _NAMESPACE_FILE.exists():
                config.load_incluster_config(configuration)
                self.namespace = _NAMESPACE_FILE.read_text().strip()
            else:
                # Named here: the client looks at KUBECONFIG only once, when it is imported.
                file = self._kubeconfig or os.environ.get("KUBECONFIG") or None
                config.load_kube_config(file, client_configuration=configuration)
                _, context = config.list_kube_config_contexts(file)
                self.namespace = context["context"].get("namespace", "default")
        except (config.ConfigException, OSError) as error:
            raise ClusterError(
                f"No Kubernetes cluster is configured: {error}. Run in a pod with a service account, or set KUBECONFIG."
            ) from error
        configuration.retries = False
        return client.ApiClient(configuration)

    @contextmanager
    def hurried(self) -> Iterator[None]:
        """In this context there is `Pace.cleanup` for all requests together."""
        self._until = time.monotonic() + self.pace.cleanup
        try:
            yield
        finally:
            self._until = float("inf")

    def get(self, path: str) -> dict[str, Any]:
        """The object at `path`."""
        return self._json("GET", path)

    def list(self, path: str, **selectors: str) -> list[dict[str, Any]]:
        """Objects under `path` that a `labelSelector` or `fieldSelector` chooses."""
        items: list[dict[str, Any]] = self._json("GET", path, query=selectors).get("items") or []
        return items

    def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Create an object under `path`. A retry may meet the object of its own first attempt: ApiConflict 409."""
        return self._json("POST", path, body=body)

    def patch(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Merge `body` into the object at `path`."""
        return self._json("PATCH", path, body=body)

    def delete(self, path: str, uid: str) -> None:
        """Delete the object at `path`, its pods with it, if it still is the one with this uid."""
        body = {"propagationPolicy": "Background", "preconditions": {"uid": uid}}
        with suppress(ApiConflict):
            self._json("DELETE", path, body=body)

    def text(self, path: str, query: dict[str, Any]) -> str:
        """The text at `path`: a log."""

        def read() -> str:
            return str(self._send("GET", path, query=query).data.decode(errors="replace"))

        text: str = self._patiently(read, f"GET {path}")
        return text

    def lines(self, path: str, query: dict[str, Any], silence: float) -> Iterator[bytes]:
        """Lines at `path` as they come, without a retry; ends where the server ends, or after `silence` seconds."""
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

    def wait_for_change(self, path: str, name: str, version: str, seconds: float) -> None:
        """Return when the object `name` under `path` changes, at the latest after `seconds`.

        A watch that breaks, is closed, or is too old for the server (410) ends in the pause of `Pace.shortest`: the
        caller looks again in any case. One that is refused ends after all `seconds`, for the next would be too.
        """
        from kubernetes.client.exceptions import ApiException

        began = time.monotonic()
        query = {
            "watch": "true",
            "fieldSelector": f"metadata.name={name}",
            "resourceVersion": version,
            "timeoutSeconds": max(1, round(seconds)),
        }
        shortest = self.pace.shortest
        try:
            for line in self.lines(path, query, silence=seconds):
                if json.loads(line).get("type") != "BOOKMARK":
                    break
        except ApiException as error:
            if error.status and error.status not in (401, *_TRANSIENT, *_CONFLICTS):
                shortest = seconds
                self._warn_of_watch(error)
        except Exception as error:
            logger.debug("A watch broke: %s", _short(error))
        rest = shortest - (time.monotonic() - began)
        if rest > 0:
            time.sleep(min(rest, seconds))

    def _warn_of_watch(self, error: Any) -> None:
        if error.status not in self._refused_watches:
            logger.warning(
                "The cluster refuses to watch the job with HTTP %d (%s): it is looked at every %g s instead. 403: give "
                "the launcher's service account the role of docs/launchers.md.",
                error.status,
                error.reason,
                self.pace.resync,
            )
        self._refused_watches.add(error.status)

    def _json(self, method: str, path: str, **arguments: Any) -> dict[str, Any]:
        def send() -> Any:
            return json.loads(self._send(method, path, **arguments).data)

        body: dict[str, Any] = self._patiently(send, f"{method} {path}")
        return body

    def _send(self, method: str, path: str, *, query: Any = None, body: Any = None, timeout: float = 0.0) -> Any:
        headers = {"Accept": "application/json, */*"}
        if body is not None:
            headers["Content-Type"] = "application/merge-patch+json" if method == "PATCH" else "application/json"
        response = self._client.call_api(
            path,
            method,
            query_params=list((query or {}).items()),
            header_params=headers,
            body=body,
            auth_settings=["BearerToken"],
            _preload_content=False,
            _return_http_data_only=True,
            _request_timeout=(self.pace.request, timeout or self.pace.request),
        )
        if not timeout:
            response.read(cache_content=True)
        return response

    def _patiently(self, send: Callable[[], Any], what: str) -> Any:
        """Send until an answer comes; after a refused token, with fresh credentials.

        Raises:
            ApiConflict: if the answer is 404, 409 or 410.
            ClusterError: if the request is refused, or failing lasts longer than `Pace.patience`.
        """
        import urllib3
        from kubernetes.client.exceptions import ApiException

        until = min(self._until, time.monotonic() + self.pace.patience)
        bound, denied = self.pace.first, 0
        while True:
            try:
                return send()
            except (ApiException, urllib3.exceptions.HTTPError, OSError, ValueError) as error:
                status = getattr(error, "status", 0) or 0
                if status in _CONFLICTS:
                    raise ApiConflict(status) from error
                denied += status == 401
                if status == 401 and denied < _TOKENS:
                    self._client = self._load()
                elif status and status not in _TRANSIENT:
                    raise _refused(what, error, status) from error
                pause = random.uniform(bound / 2, bound) + _retry_after(error)
                if time.monotonic() + pause > until:
                    raise _unreachable(what, error) from error
                logger.info("The cluster's API failed (%s): again in %.1f s.", _short(error), pause)
                time.sleep(pause)
                bound = min(bound * 2, self.pace.longest)


def _retry_after(error: Exception) -> float:
    value = (getattr(error, "headers", None) or {}).get("Retry-After", "")
    return float(value) if str(value).isdigit() else 0.0


def _refused(what: str, error: Exception, status: int) -> ClusterError:
    return ClusterError(
        f"The cluster refuses a request of the launcher with HTTP {status}: {_message(error)}\nThe request was {what}. "
        "401: log in again; 403: give the launcher's service account the role of docs/launchers.md; "
        "422: the message names the field."
    )


def _unreachable(what: str, error: Exception) -> ClusterError:
    return ClusterError(
        f"The cluster's API does not answer, or answers with errors only.\nThe last was {_short(error)} to {what}. "
        "Run again when it answers: a job that runs meanwhile is found again."
    )


def _message(error: Exception) -> str:
    with suppress(ValueError, AttributeError, TypeError):
        return str(json.loads(getattr(error, "body", b""))["message"])
    return _short(error)


def _short(error: Exception) -> str:
    status = getattr(error, "status", 0)
    return f"HTTP {status} {getattr(error, 'reason', '')}" if status else f"{type(error).__name__}"
