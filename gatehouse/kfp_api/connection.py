"""Requests to the API of Kubeflow Pipelines: tokens that are renewed, retries, and errors that say what to do."""

import json
import logging
import os
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode

from gatehouse.errors import ConfigurationError, GatehouseError
from gatehouse.runtime.redaction import require_encoded

logger = logging.getLogger(__name__)

ENDPOINT = "GATEHOUSE_KFP_ENDPOINT"
UI = "GATEHOUSE_KFP_UI"
"""Address of KFP's pages, where they are elsewhere than its API."""
NAMESPACE = "GATEHOUSE_KFP_NAMESPACE"
TOKEN = "GATEHOUSE_KFP_TOKEN"
TOKEN_FILE = "GATEHOUSE_KFP_TOKEN_FILE"
MOUNTED_TOKEN = "KF_PIPELINES_SA_TOKEN_PATH"
"""What a PodDefault of Kubeflow sets to the path of a pod's token; the KFP SDK reads it too."""

_TRANSIENT = (408, 429, 500, 502, 503, 504)
_MORE_AT_500 = 2
"""Further attempts: the server answers 500 also where a request is wrong, as a run of a version that is not there."""
_MORE_TOKENS = 3
_EXISTS = 409
_NO_ANSWER = (-1, 502, 504)
"""What came may yet be carried out, though no answer of the server itself came back."""
_LONGEST = 800
_Result = TypeVar("_Result")


class KfpError(GatehouseError):
    """Kubeflow Pipelines does not answer, or answers with errors only."""


class KfpRefusedError(KfpError):
    """Kubeflow Pipelines refuses a request, and would refuse it again.

    Attributes:
        status: The HTTP status of the answer.
    """

    permanent = True

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class Failure(Exception):
    """A request failed; the same request may succeed later.

    Attributes:
        status: The HTTP status of the answer; 0 where no connection was made, -1 where one was and no answer came.
        wait: How long the server asks to be left alone, in seconds.
    """

    def __init__(self, message: str, status: int, wait: float = 0.0) -> None:
        super().__init__(" ".join(message.split())[:_LONGEST])
        self.status = status
        self.wait = wait


@dataclass(frozen=True)
class Patience:
    """How long the API is waited for, in seconds.

    Attributes:
        request: For the answer to one request.
        retry: For the first good answer, when requests fail one after another.
        first_pause: The first pause between two attempts at most; each next one may be twice as long.
        longest_pause: A pause between two attempts at most.
        settle: For what a request without an answer may yet make.
        poll: Between two looks at a run that is waited for.
    """

    request: float = 60.0
    retry: float = 180.0
    first_pause: float = 0.5
    longest_pause: float = 15.0
    settle: float = 30.0
    poll: float = 10.0


class Connection:
    """Requests to one server. Every method raises `KfpRefusedError` and `KfpError`."""

    def __init__(self, endpoint: str, token: str, token_file: str, patience: Patience) -> None:
        """Prepare requests.

        Args:
            endpoint: Address of the server, as `https://kubeflow.example.com/pipeline`; empty for that of the
                environment.
            token: Bearer token; empty for that of the environment, or for none.
            token_file: File that holds the token and is read again for each request; empty for that of the environment.
            patience: How long to wait.

        Raises:
            ConfigurationError: if there is no address, or it is none of HTTP.
        """
        import urllib3

        given = endpoint or os.environ.get(ENDPOINT, "")
        if not given:
            raise ConfigurationError(
                f"The API of Kubeflow Pipelines is not known: set {ENDPOINT} to its address, such as "
                "http://ml-pipeline.kubeflow:8888 within the cluster, or to that of "
                "`kubectl port-forward -n kubeflow svc/ml-pipeline 8888:8888`, which is http://localhost:8888."
            )
        self.endpoint = require_encoded(given, ENDPOINT, bare=True).rstrip("/")
        if not self.endpoint.startswith(("http://", "https://")):
            raise ConfigurationError(f"{ENDPOINT}: expected http://… or https://…, found {self.endpoint!r}")
        self.patience = patience
        self._token = token or ("" if token_file else os.environ.get(TOKEN, ""))
        self._token_file = token_file or os.environ.get(TOKEN_FILE, "") or os.environ.get(MOUNTED_TOKEN, "")
        self._silent = False
        self._pool = urllib3.PoolManager(retries=False, timeout=patience.request)

    def get(self, path: str, **query: str | int) -> dict[str, Any]:
        """The answer to GET below `/apis/v2beta1/`; empty values are not sent."""
        return self.retrying(lambda: self.send("GET", path, query), f"GET {path}")

    def retrying(self, attempt: Callable[[], _Result], what: str) -> _Result:
        """Try until a good answer comes; `what` is the request in words.

        Raises:
            KfpRefusedError: if the server refuses the request.
            KfpError: if no good answer came as long as patience lasts.
        """
        until, bound = time.monotonic() + self.patience.retry, self.patience.first_pause
        statuses: list[int] = []
        while True:
            try:
                result = attempt()
                self._silent = False
                return result
            except (KfpRefusedError, Failure) as error:
                statuses.append(error.status)
                if isinstance(error, KfpRefusedError) and (error.status != 401 or statuses.count(401) > _MORE_TOKENS):
                    raise
                pause = random.uniform(bound / 2, bound) + getattr(error, "wait", 0.0)
                if time.monotonic() + pause > until or statuses.count(500) > _MORE_AT_500:
                    raise KfpError(f"{self.endpoint} does not answer {what}: {error}") from error
                logger.info("Kubeflow Pipelines failed (%s): again in %.1f s.", error, pause)
                if not self._silent:
                    self._silent = True
                    last = datetime.now() + timedelta(seconds=until - time.monotonic())
                    logger.warning(
                        "%s does not answer (%s); trying again until %s.", self.endpoint, error, f"{last:%H:%M:%S}"
                    )
            time.sleep(pause)
            bound = min(bound * 2, self.patience.longest_pause)

    def creating(
        self,
        attempt: Callable[[], _Result],
        look: Callable[[], _Result | None],
        what: str,
        repeatable: bool = False,
    ) -> _Result:
        """Create something once, however many attempts that takes.

        Args:
            attempt: Creates it.
            look: Finds it where an earlier attempt created it though no good answer came.
            what: The request in words.
            repeatable: Whether the server itself creates it once, as where names are unique. If not, an attempt that
                got no answer in time is not followed by another, as it may yet be carried out.
        """
        tried = False

        def once() -> _Result:
            nonlocal tried
            if tried and (found := look()) is not None:
                return found
            tried = True
            try:
                return attempt()
            except KfpRefusedError as error:
                if error.status == _EXISTS and (found := look()) is not None:
                    return found
                raise
            except Failure as error:
                if repeatable or error.status not in _NO_ANSWER:
                    raise
                return self._appearing(look, what)

        return self.retrying(once, what)

    def _appearing(self, look: Callable[[], _Result | None], what: str) -> _Result:
        """What a request without an answer makes, as soon as it is there."""
        until = time.monotonic() + self.patience.settle
        while (found := look()) is None:
            if time.monotonic() > until:
                raise KfpError(
                    f"{self.endpoint} did not answer {what} in time, and may still do it. Run the same command again "
                    "in a minute: it first looks whether that was done."
                )
            time.sleep(self.patience.first_pause)
        return found

    def send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str | int] | None = None,
        body: Mapping[str, Any] | None = None,
        file: tuple[str, bytes] | None = None,
    ) -> dict[str, Any]:
        """One request, once.

        Args:
            method: Of HTTP.
            path: Below `/apis/v2beta1/`.
            query: Parameters; empty ones are not sent.
            body: Sent as JSON.
            file: Name and content of a file that is uploaded.

        Raises:
            KfpRefusedError: if the server refuses it.
            Failure: if the server fails, or what answers is not Kubeflow Pipelines.
        """
        import urllib3

        headers = {"Accept": "application/json"} | self._authorization()
        url = f"{self.endpoint}/apis/v2beta1/{path}"
        if given := {name: value for name, value in (query or {}).items() if value != ""}:
            url = f"{url}?{urlencode(given)}"
        content: dict[str, Any] = {}
        if file is not None:
            content = {"fields": {"uploadfile": file}}
        elif body is not None:
            content, headers["Content-Type"] = {"body": json.dumps(body).encode()}, "application/json"
        try:
            answer = self._pool.request(method, url, headers=headers, redirect=False, **content)
        except (urllib3.exceptions.NewConnectionError, urllib3.exceptions.ConnectTimeoutError) as error:
            raise Failure(str(error), 0) from error
        except urllib3.exceptions.HTTPError as error:
            raise Failure(str(error), _NO_ANSWER[0]) from error
        return self._read(answer.status, answer.data, answer.headers, f"{method} {path}")

    def _authorization(self) -> dict[str, str]:
        token = self._token
        if not token and self._token_file:
            try:
                token = Path(self._token_file).read_text().strip()
            except OSError as error:
                raise ConfigurationError(
                    f"{TOKEN_FILE}: cannot read the token of Kubeflow Pipelines: {error}"
                ) from error
        if not (token.isascii() and token.isprintable() and " " not in token):
            raise ConfigurationError(
                f"{TOKEN if self._token else TOKEN_FILE}: expected one word of ASCII, found a token with a blank, "
                "a line break or another character that no HTTP header takes; it is not shown here."
            )
        return {"Authorization": f"Bearer {token}"} if token else {}

    def _read(self, status: int, data: bytes, headers: Mapping[str, str], what: str) -> dict[str, Any]:
        try:
            answer = json.loads(data) if data.strip() else {}
        except ValueError:
            answer = None
        if status < 300 and isinstance(answer, dict):
            return answer
        if status in _TRANSIENT:
            after = headers.get("Retry-After", "")
            raise Failure(f"HTTP {status}: {_message(answer, data)}", status, float(after) if after.isdigit() else 0.0)
        if status < 400:
            raise KfpRefusedError(
                f"{self.endpoint} answered {what} with HTTP {status} and no JSON: that is a login page, or no Kubeflow "
                f"Pipelines. Set {ENDPOINT} to the address of its API, and {TOKEN} to a token.",
                401 if status >= 300 else status,
            )
        raise KfpRefusedError(
            f"Kubeflow Pipelines refuses {what} with HTTP {status}: {_message(answer, data)}{_advice(status)}", status
        )


def _advice(status: int) -> str:
    if status == 401:
        return f". Set {TOKEN} to a token that holds, or {TOKEN_FILE} to a file that is renewed."
    if status == 403:
        return f". Ask for the rights on pipelines, experiments, runs and jobs in the namespace, or set {NAMESPACE}."
    return ""


def _message(answer: Any, data: bytes) -> str:
    """What the server says for people: of the details of a gateway's error, of an upload's error, or as it is."""
    if not isinstance(answer, dict):
        return data[:_LONGEST].decode(errors="replace")
    details = [each.get("message") for each in answer.get("details", []) if isinstance(each, dict)]
    said = [*details, answer.get("message"), answer.get("error_message"), answer.get("error")]
    return next((str(each) for each in said if each), "")[:_LONGEST]
