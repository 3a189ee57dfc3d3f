"""The generated client for the API of Kubeflow Pipelines, with tokens that are renewed, retries, and our errors."""

import json
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import urllib3
from kfp_server_api import ApiClient, ApiException, Configuration
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_before_delay, wait_random_exponential
from urllib3.exceptions import ConnectTimeoutError, NewConnectionError

from gatehouse.errors import ConfigurationError, GatehouseError
from gatehouse.kfp_api.variables import MOUNTED_TOKEN, TOKEN, TOKEN_FILE
from gatehouse.runtime.redaction import require_encoded
from gatehouse.runtime.variables import ENDPOINT, NAMESPACE

logger = logging.getLogger(__name__)

_TRANSIENT = (408, 429, 500, 502, 503, 504)
_MORE_AT_500 = 2
"""Further attempts: the server also answers 500 to wrong requests, such as a run of an unknown version."""
_MORE_TOKENS = 3
_EXISTS = 409
_NOT_CONNECTED, _NO_ANSWER = 0, -1
_MAY_BE_DONE = (_NO_ANSWER, 502, 504)
"""The request may still be carried out, although the server itself did not answer."""
_LONGEST = 800
_Result = TypeVar("_Result")


class KfpError(GatehouseError):
    """Kubeflow Pipelines does not answer, or answers with errors only."""


class KfpRefusedError(KfpError):
    """Kubeflow Pipelines refuses a request, and would refuse it again; `status` is the HTTP status."""

    permanent = True

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class Failure(Exception):
    """A request failed; the same request may succeed later.

    Attributes:
        status: The HTTP status of the answer; 0 without a connection, -1 without an answer.
        wait: Seconds for which the server asks to be left alone.
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
        first_pause, longest_pause: Upper limits of the pauses between attempts.
        settle: For the effect of a request without an answer.
        poll: Between two looks at a run.
    """

    request: float = 60.0
    retry: float = 180.0
    first_pause: float = 0.5
    longest_pause: float = 15.0
    settle: float = 30.0
    poll: float = 10.0


class Connection(ApiClient):  # type: ignore[misc]  # The generated client has no types.
    """Requests to one server."""

    def __init__(self, endpoint: str, patience: Patience) -> None:
        """Prepare requests; an empty address comes from the environment, as the token or its file does.

        A token file is read again for each request. Raises ConfigurationError if there is no address, or it is none of
        HTTP.
        """
        address = endpoint or os.environ.get(ENDPOINT, "")
        if not address:
            raise ConfigurationError(
                f"The API of Kubeflow Pipelines is not known: set {ENDPOINT} to its address, such as "
                "http://ml-pipeline.kubeflow:8888 within the cluster, or to that of "
                "`kubectl port-forward -n kubeflow svc/ml-pipeline 8888:8888`, which is http://localhost:8888."
            )
        self.endpoint = require_encoded(address, ENDPOINT, bare=True).rstrip("/")
        if not self.endpoint.startswith(("http://", "https://")):
            raise ConfigurationError(f"{ENDPOINT}: expected http://… or https://…, found {self.endpoint!r}")
        self.patience = patience
        self._token = os.environ.get(TOKEN, "")
        self._token_file = os.environ.get(TOKEN_FILE, "") or os.environ.get(MOUNTED_TOKEN, "")
        configuration = Configuration(host=self.endpoint)
        configuration.retries = False
        super().__init__(configuration)

    def request(self, method: str, url: str, headers: Any = None, **arguments: Any) -> Any:
        """One request of the generated client.

        Raises KfpRefusedError if the server refuses it. Raises Failure if the server fails, or no Kubeflow Pipelines
        answers.
        """
        what = f"{method} {url.removeprefix(self.endpoint).removeprefix('/apis/v2beta1/')}"
        arguments["_request_timeout"] = (self.patience.request, self.patience.request)
        try:
            answer = super().request(method, url, headers={**headers, **self._authorization()}, **arguments)
        except (NewConnectionError, ConnectTimeoutError) as error:
            raise Failure(str(error), _NOT_CONNECTED) from error
        except urllib3.exceptions.HTTPError as error:
            raise Failure(str(error), _NO_ANSWER) from error
        except ApiException as error:
            message = _message(error.body or error.reason or "")
            if error.status in _TRANSIENT or not error.status:
                after = (error.headers or {}).get("Retry-After", "")
                wait = float(after) if after.isdigit() else 0.0
                raise Failure(f"HTTP {error.status}: {message}", error.status, wait) from error
            if error.status >= 400:
                refused = f"Kubeflow Pipelines refuses {what} with HTTP {error.status}: {message}"
                raise KfpRefusedError(refused + _ADVICE.get(error.status, ""), error.status) from error
            raise self._no_api(what, error.status) from error
        try:
            json.loads(answer.data or b"{}")
        except ValueError as error:
            raise self._no_api(what, answer.status) from error
        return answer

    def health(self) -> dict[str, Any]:
        """The server's health, with its release, which the generated classes do not read."""
        answer: dict[str, Any] = self.retrying(
            lambda: self.call_api(
                "/apis/v2beta1/healthz", "GET", response_type="object", _return_http_data_only=True, header_params={}
            ),
            "GET healthz",
        )
        return answer

    def retrying(self, attempt: Callable[[], _Result], what: str) -> _Result:
        """Try until a good answer comes; `what` names the request.

        Raises KfpRefusedError if the server refuses the request. Raises KfpError if no good answer comes in time.
        """
        statuses: list[int] = []
        pause = wait_random_exponential(self.patience.first_pause, self.patience.longest_pause)

        def may_pass(error: BaseException) -> bool:
            if not isinstance(error, KfpRefusedError | Failure):
                return False
            statuses.append(error.status)
            if isinstance(error, KfpRefusedError):
                return error.status == 401 and statuses.count(401) <= _MORE_TOKENS
            return statuses.count(500) <= _MORE_AT_500

        def wait(state: RetryCallState) -> float:
            error = state.outcome.exception() if state.outcome else None
            return pause(state) + getattr(error, "wait", 0.0)

        def log_retry(state: RetryCallState) -> None:
            level = logging.WARNING if state.attempt_number == 1 else logging.INFO
            error = state.outcome.exception() if state.outcome else None
            retry = self.patience.retry
            logger.log(level, "%s does not answer (%s); trying again for %g s.", self.endpoint, error, retry)

        try:
            return Retrying(
                retry=retry_if_exception(may_pass),
                stop=stop_before_delay(self.patience.retry),
                wait=wait,
                before_sleep=log_retry,
                reraise=True,
            )(attempt)
        except Failure as error:
            raise KfpError(f"{self.endpoint} does not answer {what}: {error}") from error

    def creating(
        self,
        attempt: Callable[[], _Result],
        look: Callable[[], _Result | None],
        what: str,
        repeatable: bool = False,
    ) -> _Result:
        """Create something once, however many attempts that takes.

        `look` finds it if an earlier attempt created it without a good answer. `repeatable` says that the server itself
        creates it once, as where names are unique. If not, an attempt without an answer is not followed by another one,
        because it may still be carried out.
        """
        tried = False

        def once() -> _Result:
            nonlocal tried
            if tried and (existing := look()) is not None:
                return existing
            tried = True
            try:
                return attempt()
            except KfpRefusedError as error:
                if error.status == _EXISTS and (existing := look()) is not None:
                    return existing
                raise
            except Failure as error:
                if repeatable or error.status not in _MAY_BE_DONE:
                    raise
            until = time.monotonic() + self.patience.settle
            while (created := look()) is None:
                if time.monotonic() > until:
                    raise KfpError(
                        f"{self.endpoint} did not answer {what} in time, and may still do it. Run the same command "
                        "again in a minute: it first looks whether that was done."
                    )
                time.sleep(self.patience.first_pause)
            return created

        return self.retrying(once, what)

    def _authorization(self) -> dict[str, str]:
        token = self._token
        if not token and self._token_file:
            try:
                token = Path(self._token_file).read_text().strip()
            except OSError as error:
                raise ConfigurationError(f"{TOKEN_FILE}: cannot read the token: {error}") from error
        if not (token.isascii() and token.isprintable() and " " not in token):
            raise ConfigurationError(
                f"{TOKEN if self._token else TOKEN_FILE}: expected one word of ASCII, found a token that no "
                "HTTP header takes; it is not shown here."
            )
        return {"Authorization": f"Bearer {token}"} if token else {}

    def _no_api(self, what: str, status: int) -> KfpRefusedError:
        return KfpRefusedError(
            f"{self.endpoint} answered {what} with HTTP {status} and no JSON: that is a login page, or no Kubeflow "
            f"Pipelines. Set {ENDPOINT} to the address of its API, and {TOKEN} to a token.",
            401 if status >= 300 else status,
        )


_ADVICE = {
    401: f". Set {TOKEN} to a token that holds, or {TOKEN_FILE} to a file that is renewed.",
    403: f". Ask for the rights on pipelines, experiments, runs and jobs in the namespace, or set {NAMESPACE}.",
}


def _message(body: str | bytes) -> str:
    """The server's message for people: from the details of a gateway's error, from an upload's error, or the body."""
    text = body.decode(errors="replace") if isinstance(body, bytes) else body
    try:
        answer = json.loads(text)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        return text[:_LONGEST]
    details = [detail.get("message") for detail in answer.get("details", []) if isinstance(detail, dict)]
    messages = (*details, answer.get("message"), answer.get("error_message"), answer.get("error"))
    return str(next(filter(None, messages), ""))[:_LONGEST]
