"""Posts notices to the webhook that `GATEHOUSE_ALERT_WEBHOOK` names, once each, and never fails a run.

The address is a secret, because whoever has it can post: nothing that is returned, logged or raised here holds a part
of it. Errors are therefore reported by their kind.
"""

import json
import logging
import os
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gatehouse.errors import ConfigurationError
from gatehouse.runtime.redaction import require_encoded
from gatehouse.store.run import Attempt
from gatehouse.store.store import ArtifactStore

logger = logging.getLogger(__name__)

ADDRESS = "GATEHOUSE_ALERT_WEBHOOK"
_ATTEMPTS, _TIMEOUT, _BACKOFF, _LONGEST_PAUSE = 5, 10.0, 1.0, 30
_TRANSIENT = (429, 500, 502, 503, 504)


@dataclass(frozen=True)
class Delivery:
    """Whether a notice was accepted, after how many attempts, and the last answer or kind of error."""

    delivered: bool
    attempts: int
    why: str


def tell(
    store: ArtifactStore, what: str, body: Mapping[str, Any], key: str, receipt: str = "", **about: Any
) -> Delivery:
    """Post a notice; if nobody gets it, the record of the run has a warning.

    Args:
        store: Holds the receipt and the record of this run.
        what: What the notice says, for the warning.
        body: The notice.
        key: Makes a repeat harmless.
        receipt: Key of the record of the delivery, after which it is not posted again; empty for none.
        **about: More fields of the receipt.
    """
    if receipt and store.objects.stat(receipt):
        return Delivery(True, 0, "was delivered by an earlier attempt")
    url = os.environ.get(ADDRESS, "").strip()
    delivery = post(url, body, key) if url else Delivery(False, 0, f"is not set: {ADDRESS} is empty")
    if not delivery.delivered:
        message = f"Nobody was told that {what}: the webhook {delivery.why}"
        logger.warning("%s.", message)
        Attempt(store, "alert:webhook").note("warned", message=message, attempts=delivery.attempts)
    elif receipt:
        store.record(receipt, {"attempts": delivery.attempts, **about})
    return delivery


def post(url: str, body: Mapping[str, Any], key: str, attempts: int = 0, timeout: float = 0.0) -> Delivery:
    """Post `body` as JSON until it is accepted (2xx), or until another attempt cannot help.

    Connection errors, timeouts, 429 and 5xx are tried again, after `Retry-After` where the answer has it. No redirect
    is followed: it could lead the body to somebody else.

    Args:
        url: The webhook, http or https.
        body: The notice.
        key: Sent as `Idempotency-Key`; the same for every attempt.
        attempts: Maximum number of attempts; 0 for the usual number.
        timeout: Seconds for one attempt; 0 for the usual time.
    """
    import requests
    from requests.adapters import HTTPAdapter
    from urllib3.util import Retry

    attempts, timeout = attempts or _ATTEMPTS, timeout or _TIMEOUT
    try:
        parts = urllib.parse.urlsplit(require_encoded(url, ADDRESS))
    except (ConfigurationError, ValueError):
        return Delivery(False, 0, "has no usable address")
    if parts.scheme not in ("http", "https") or parts.username is not None:
        return Delivery(False, 0, "has no http or https address without a user")
    retries = Retry(
        total=attempts - 1,
        status_forcelist=_TRANSIENT,
        allowed_methods=None,
        backoff_factor=_BACKOFF,
        backoff_jitter=_BACKOFF,
        raise_on_status=False,
        retry_after_max=_LONGEST_PAUSE,
    )
    data = json.dumps(body, ensure_ascii=False, sort_keys=True).encode(errors="replace")
    headers = {"Content-Type": "application/json", "Idempotency-Key": key, "User-Agent": "gatehouse"}
    wire = logging.getLogger("urllib3")  # Its lines hold the path of the address.
    level = wire.level
    wire.setLevel(logging.CRITICAL)
    try:
        with requests.Session() as session:
            session.mount(f"{parts.scheme}://", HTTPAdapter(max_retries=retries))
            options = {"allow_redirects": False, "stream": True, "timeout": timeout}
            with session.post(url, data, headers=headers, **options) as response:
                tried = len(response.raw.retries.history) + 1 if response.raw.retries else 1
                return Delivery(200 <= response.status_code < 300, tried, f"answered {response.status_code}")
    except requests.exceptions.SSLError:
        return Delivery(False, attempts, "has a certificate that cannot be verified")
    except (requests.ConnectionError, requests.Timeout):
        return Delivery(False, attempts, "could not be reached")
    except (requests.RequestException, ValueError) as error:
        return Delivery(False, 1, f"could not be called: {type(error).__name__}")
    finally:
        wire.setLevel(level)
