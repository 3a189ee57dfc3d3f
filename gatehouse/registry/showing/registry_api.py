"""The parts of the Kubeflow Model Registry's REST API, v1alpha3, that a projection needs."""

import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from gatehouse.errors import GatehouseError
from gatehouse.runtime.redaction import require_encoded

SERVER, AUTHOR, TOKEN = "GATEHOUSE_MODEL_REGISTRY", "GATEHOUSE_MODEL_REGISTRY_AUTHOR", "GATEHOUSE_MODEL_REGISTRY_TOKEN"
_PREFIX = "/api/model_registry/v1alpha3/"
_TOKEN_PATH, _TOKEN_FILE = "KF_PIPELINES_SA_TOKEN_PATH", "/var/run/secrets/kubernetes.io/serviceaccount/token"
_TRANSIENT = (429, 500, 502, 503, 504)
_ATTEMPTS, _PAUSE, _TIMEOUT, _PAGE = 3, 0.5, 20.0, 100
Resource = dict[str, Any]


class ModelRegistryError(GatehouseError):
    """The Model Registry does not answer or refuses a request; the next projection tries again.

    Attributes:
        status: The HTTP status; 0 without an answer.
    """

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class RegistryApi:
    """Client of a Model Registry.

    Its methods raise `ModelRegistryError` if the registry does not answer, or refuses a request.

    Attributes:
        address: Address, such as `https://registry.example:443`.
        author: Author of new entries.
    """

    address: str
    author: str

    def every(self, path: str) -> Iterator[Resource]:
        """Every resource of a list, page by page."""
        token = ""
        while True:
            asked = {"pageSize": str(_PAGE)} | ({"nextPageToken": token} if token else {})
            page = self._send("GET", f"{path}?{urlencode(asked)}")
            yield from page.get("items") or ()
            token = page.get("nextPageToken", "")
            if not token:
                return

    def create(self, path: str, body: Resource) -> Resource | None:
        """Create a resource; None if one with this name exists."""
        try:
            return self._send("POST", path, body)
        except ModelRegistryError as error:
            if error.status == 409:
                return None
            raise

    def update(self, path: str, body: Resource) -> Resource:
        """Change fields of a resource; `customProperties`, if given, are replaced as a whole."""
        return self._send("PATCH", path, body)

    def _send(self, method: str, path: str, body: Resource | None = None) -> Resource:
        """Send a request, with retries: a repeated creation does no harm, as the registry refuses it."""
        data = None if body is None else json.dumps(body).encode()
        require_encoded(self.address, SERVER, bare=True)
        for attempt in range(_ATTEMPTS):
            time.sleep(attempt * _PAUSE)
            request = urllib.request.Request(self.address + _PREFIX + path, data, self._headers(), method=method)
            try:
                with _OPENER.open(request, timeout=_TIMEOUT) as answer:
                    read: Resource = json.load(answer)
                    return read
            except urllib.error.HTTPError as error:
                status, told = error.code, error.read(2000).decode(errors="replace")
            except (OSError, HTTPException, ValueError) as error:
                status, told = 0, f"{type(error).__name__}: {error}"
            if status and status not in _TRANSIENT:
                break
        answered = f"answered {status}" if status else "gave no answer"
        raise ModelRegistryError(
            f"The Model Registry at {self.address} {answered} to {method} {path.partition('?')[0]}: {told.strip()}. "
            f"Expected the API v1alpha3 of a Kubeflow Model Registry there; {SERVER} names it.",
            status,
        )

    def _headers(self) -> Mapping[str, str]:
        given = {"Content-Type": "application/json", "Accept": "application/json"}
        token = os.environ.get(TOKEN, "") or self._service_account()
        return given | ({"Authorization": f"Bearer {token}"} if token else {})

    def _service_account(self) -> str:
        """The token of the pod's service account, which changes while a pod runs; not for an unencrypted connection."""
        path = Path(os.environ.get(_TOKEN_PATH, "") or _TOKEN_FILE)
        return path.read_text().strip() if self.address.startswith("https://") and path.is_file() else ""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect, so that the token is sent only to the server that was named."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Return the redirect as the answer."""


_OPENER = urllib.request.build_opener(_NoRedirects())


def registry_here() -> RegistryApi | None:
    """The Model Registry that the environment names, or None."""
    server = os.environ.get(SERVER, "").strip().rstrip("/")
    return RegistryApi(server, os.environ.get(AUTHOR, "") or "gatehouse") if server else None
