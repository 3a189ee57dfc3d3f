"""Posts JSON to a webhook: again where that can help, under a key that makes a repeat harmless, and never raising.

The address is a secret, as whoever has it can post: it comes from the environment, and nothing that is returned,
logged or raised here holds it or a part of it. That is why errors are told by their kind and not by their text.
"""

import http.client
import json
import logging
import os
import random
import socket
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from gatehouse.errors import ConfigurationError
from gatehouse.runtime.redaction import require_encoded
from gatehouse.store.redirects import NoRedirects

logger = logging.getLogger(__name__)

ADDRESS = "GATEHOUSE_ALERT_WEBHOOK"


@dataclass(frozen=True)
class RetryPolicy:
    """How long posting may take.

    Attributes:
        attempts: How often it is tried at most.
        timeout: Seconds for one attempt, from the look-up of the name to the status of the answer.
        backoff: Seconds of the first pause at most; each further one may be twice as long. Pauses are drawn between
            half of that and all of it, so that many who were refused at once do not return at once.
        deadline: Seconds for everything; no pause begins that would end after it.
    """

    attempts: int = 5
    timeout: float = 10.0
    backoff: float = 1.0
    deadline: float = 60.0

    def pause(self, attempt: int) -> float:
        """Seconds to wait after attempt number `attempt`, from 1: another draw each time."""
        return self.backoff * 2.0 ** (attempt - 1) * random.uniform(0.5, 1.0)


@dataclass(frozen=True)
class Delivery:
    """Whether it arrived, after how many attempts, and what came last: an answer or a kind of error."""

    delivered: bool
    attempts: int
    why: str


@dataclass(frozen=True)
class _Answer:
    """What one attempt led to: `again` says whether another one may help, after `pause` seconds at least."""

    why: str
    delivered: bool = False
    again: bool = False
    pause: float = 0.0


def address() -> str:
    """The webhook that the environment names; empty for none."""
    return os.environ.get(ADDRESS, "").strip()


def post(
    url: str,
    body: Mapping[str, Any],
    key: str,
    policy: RetryPolicy | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Delivery:
    """Post `body` until it is accepted (2xx), until trying again cannot help, or until the policy allows no more.

    Connection errors, time-outs, 429 and 5xx are tried again; a 429 or 503 says after how long (`Retry-After`). Other
    answers are not, and no redirect is followed: it could lead the body to somebody else.

    Args:
        url: The webhook, http or https.
        body: What is sent as JSON.
        key: Sent as `Idempotency-Key`; the same for every attempt.
        policy: How long this may take.
        sleep: Waits for so many seconds.
    """
    policy = policy or RetryPolicy()
    ends = time.monotonic() + policy.deadline
    data = json.dumps(body, ensure_ascii=False, sort_keys=True).encode(errors="replace")
    attempt, answer = 0, _Answer("")
    while True:
        attempt += 1
        answer = _bounded(url, data, key, max(0.05, min(policy.timeout, ends - time.monotonic())))
        if answer.delivered or not answer.again or attempt >= policy.attempts:
            break
        pause = answer.pause + policy.pause(attempt)
        if time.monotonic() + pause >= ends:
            answer = _Answer(f"{answer.why}; no time is left to try again")
            break
        logger.info("The webhook %s; trying again in %.1f s.", answer.why, pause)
        sleep(pause)
    return Delivery(answer.delivered, attempt, answer.why)


def _bounded(url: str, data: bytes, key: str, timeout: float) -> _Answer:
    """One attempt within `timeout` seconds, which neither the look-up of a name nor a slow answer can stretch."""
    answers: list[_Answer] = []
    thread = threading.Thread(target=lambda: answers.append(_once(url, data, key, timeout)), daemon=True)
    thread.start()
    thread.join(timeout)
    return answers[0] if answers else _Answer(f"gave no answer within {timeout:.1f} s", again=True)


def _once(url: str, data: bytes, key: str, timeout: float) -> _Answer:
    headers = {"Content-Type": "application/json", "Idempotency-Key": key, "User-Agent": "gatehouse"}
    try:
        parts = urllib.parse.urlsplit(require_encoded(url, ADDRESS))
        if parts.scheme not in ("http", "https"):
            return _Answer("has no http or https address")
        if parts.username is not None:  # http.client takes them for a part of the name to look up.
            return _Answer("has an address with a user, which is not supported")
        request = urllib.request.Request(url, data, headers, method="POST")
        with urllib.request.build_opener(NoRedirects()).open(request, timeout=timeout) as response:
            return _Answer(f"answered {response.status}", delivered=True)
    except urllib.error.HTTPError as error:
        with error:
            return _refused(error.code, error.headers.get("Retry-After", ""))
    except urllib.error.URLError as error:
        return _failed(error.reason)
    except Exception as error:  # whatever it is, the run goes on, and the text may hold the address
        return _failed(error)


def _refused(status: int, retry_after: str) -> _Answer:
    if 300 <= status < 400:
        return _Answer(f"answered {status}, a redirect, which is not followed")
    again = status == 429 or status >= 500
    return _Answer(f"answered {status}", again=again, pause=_seconds(retry_after) if again else 0.0)


def _failed(error: object) -> _Answer:
    kind = type(error).__name__
    if isinstance(error, TimeoutError):
        return _Answer("gave no answer in time", again=True)
    if isinstance(error, ssl.SSLCertVerificationError):
        return _Answer("has a certificate that cannot be verified")
    if isinstance(error, socket.gaierror):
        return _Answer("has a name that cannot be looked up", again=True)
    if isinstance(error, http.client.InvalidURL | ConfigurationError):
        return _Answer("has no usable address")
    if isinstance(error, OSError | http.client.HTTPException):
        return _Answer(f"could not be reached: {kind}", again=True)
    return _Answer(f"could not be called: {kind}")


def _seconds(retry_after: str) -> float:
    """`Retry-After` in seconds from now: a number, or a date; 0 for anything else."""
    text = retry_after.strip()
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        date = parsedate_to_datetime(text)
        return max(0.0, ((date if date.tzinfo else date.replace(tzinfo=UTC)) - datetime.now(UTC)).total_seconds())
    except (ValueError, OverflowError):
        return 0.0
