"""Notices in the form of their webhook (plain JSON, Slack, Teams), and the request that delivers one.

No value from data becomes a mention or a link: Slack's control characters are escaped, and cards hold values in text
runs, which know no Markdown. Slack takes 150 characters in a header and 3,000 in a section; Teams takes 28 KB, which it
may count in two bytes a character, and shows six buttons.

The address of the webhook is a secret, because whoever has it can post: no result, log line or error holds a part of
it. Errors are therefore reported by their kind.
"""

import base64
import binascii
import hashlib
import hmac
import json
import logging
import threading
import time
import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from gatehouse.errors import ConfigurationError
from gatehouse.reports.format import shortened
from gatehouse.runtime.redaction import require_encoded
from gatehouse.store.announcement import Tone

logger = logging.getLogger(__name__)

ADDRESS = "GATEHOUSE_ALERT_WEBHOOK"
VERSION = 1
"""Version of the generic form."""
Form = Literal["generic", "slack", "teams"]
When = Literal["fail", "warn", "always", "never"]
"""Which ends of runs are posted: failures, also warnings, all, or none."""

_SECTION, _CARD_TEXT, _LINK, _LINKS = 2900, 6000, 500, 5
_COLORS: dict[Tone, str] = {"bad": "Attention", "warn": "Warning", "good": "Good"}
_SIGNS: dict[Tone, str] = {"bad": "✕", "warn": "!", "good": "✓"}
_ATTEMPTS, _TIMEOUT, _BACKOFF, _LONGEST_PAUSE = 5, 10.0, 1.0, 30
_TRANSIENT = (429, 500, 502, 503, 504)
_posting = threading.local()
for _name in ("connection", "connectionpool", "util.retry"):
    # Its lines hold the path of the address.
    logging.getLogger(f"urllib3.{_name}").addFilter(lambda _: not getattr(_posting, "now", False))


@dataclass(frozen=True)
class Notice:
    """The content of a notice: one line of title, lines of reasons, facts by name, and links by name.

    A link is an address of the web or any other place. Empty facts and links are not shown.
    """

    title: str
    tone: Tone
    lines: Sequence[str] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The notice as plain text, with Slack's control characters escaped."""
        pairs = [*self.facts.items(), *self.links.items()]
        return inert("\n".join([self.title, *self.lines, *(f"{name}: {value}" for name, value in pairs if value)]))


@dataclass(frozen=True)
class Delivery:
    """Whether a notice was accepted, after how many attempts, and the last answer or kind of error."""

    delivered: bool
    attempts: int
    why: str


def body_of(notice: Notice, form: Form, about: Mapping[str, Any]) -> dict[str, Any]:
    """The body of a notice; `about` is for programs, in the generic form only, as others refuse unknown fields.

    In the generic form each notice has the same fields: `about` names the event, its state, and what it is about.
    """
    if form == "generic":
        parts = {"message": "\n".join(notice.lines), "facts": {**notice.facts}, "links": {**notice.links}}
        return {"version": VERSION, **parts, **about, "text": notice.text}
    links = {name: place for name, place in notice.links.items() if place and len(inert(place)) < _LINK}
    web = dict([link for link in links.items() if link[1].startswith(("https://", "http://"))][:_LINKS])
    facts = [*notice.facts.items(), *(link for link in links.items() if link[0] not in web)]
    text = "\n".join([*(f"{name}: {fact}" for name, fact in facts if fact), *notice.lines])
    if form == "slack":
        title = f"{_SIGNS[notice.tone]} {shortened(notice.title, 140)}"
        blocks: list[dict[str, Any]] = [{"type": "header", "text": {"type": "plain_text", "text": title}}]
        anchors = " ".join(f"<{inert(place)}|{inert(name)}>" for name, place in web.items())
        for section in filter(None, (_cut_escaped(text), anchors)):
            # `verbatim` keeps Slack from making links and mentions of text that looks like one.
            blocks.append({"type": "section", "text": {"type": "mrkdwn", "text": section, "verbatim": True}})
        return {"text": inert(title), "blocks": blocks}
    runs = [{"text": shortened(notice.title, 500), "weight": "Bolder", "color": _COLORS[notice.tone]}]
    runs += [{"text": shortened(text, _CARD_TEXT)}] if text else []
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": [{"type": "RichTextBlock", "inlines": [{"type": "TextRun", **run}]} for run in runs],
        "actions": [{"type": "Action.OpenUrl", "title": name, "url": place} for name, place in web.items()],
        "msteams": {"width": "Full"},
    }
    kind = "application/vnd.microsoft.card.adaptive"
    return {"type": "message", "attachments": [{"contentType": kind, "contentUrl": None, "content": card}]}


def inert(text: str) -> str:
    """Text in which no value becomes a mention or a link in Slack (`<!channel>`, `<http://…>`)."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _cut_escaped(text: str) -> str:
    """Escaped text of a section; it is cut before it is escaped, so that no escape is cut."""
    cut = text
    while len(inert(cut)) > _SECTION:
        cut = shortened(cut, max(1, len(cut) - (len(inert(cut)) - _SECTION) // 5 - 1))
    return inert(cut)


def post(
    url: str,
    body: Mapping[str, Any],
    key: str,
    attempts: int = 0,
    timeout: float = 0.0,
    secret: str = "",
    media: str = "application/json",
) -> Delivery:
    """Post `body` as JSON until it is accepted (2xx), or until another attempt cannot help.

    Connection errors, timeouts, 429 and 5xx are retried, after `Retry-After` if the answer has it, with the same `key`
    as `Idempotency-Key`. Redirects are not followed, because they could lead the body to somebody else. By default
    there are five attempts of at most ten seconds. With a `secret` the request is signed (`signature`).
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
    data = json.dumps(body, ensure_ascii=False, sort_keys=True).encode(errors="replace")
    headers = {"Content-Type": media, "Idempotency-Key": key, "User-Agent": "gatehouse"}
    try:
        headers |= signature(secret, key, data) if secret else {}
    except ConfigurationError:
        return Delivery(False, 0, "has no usable secret: expected whsec_ and base64")
    retries = Retry(
        total=attempts - 1,
        status_forcelist=_TRANSIENT,
        allowed_methods=None,
        backoff_factor=_BACKOFF,
        backoff_jitter=_BACKOFF,
        raise_on_status=False,
        retry_after_max=_LONGEST_PAUSE,
    )
    _posting.now = True
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
        _posting.now = False


def signature(secret: str, key: str, body: bytes, at: float = 0.0) -> dict[str, str]:
    """The headers that sign a body, by Standard Webhooks 1.0 (https://www.standardwebhooks.com).

    `secret` is `whsec_` and base64; `at` is in seconds since 1970, by default now. Raises ConfigurationError for
    another secret, without showing it.
    """
    try:
        code = base64.b64decode(secret.strip().removeprefix("whsec_"), validate=True)
    except (binascii.Error, ValueError):
        code = b""
    if not code:
        raise ConfigurationError("The secret of a webhook: expected whsec_ and base64, found another text.")
    moment = str(int(at or time.time()))
    signed = hmac.new(code, f"{key}.{moment}.".encode() + body, hashlib.sha256).digest()
    return {
        "webhook-id": key,
        "webhook-timestamp": moment,
        "webhook-signature": f"v1,{base64.b64encode(signed).decode()}",
    }
