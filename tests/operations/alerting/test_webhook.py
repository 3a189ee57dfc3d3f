"""Posting to a webhook: what is tried again and what is not, for how long, and that its address is told to nobody."""

import logging
import socket
import ssl
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from gatehouse.operations.alerting.stage import alert
from gatehouse.operations.alerting.webhook import RetryPolicy, post
from tests.operations.alerting.hook import PATH, hooked

QUICK = RetryPolicy(attempts=4, timeout=30.0, backoff=0.01, deadline=120.0)
SILENT = RetryPolicy(attempts=4, timeout=1.0, backoff=0.01, deadline=120.0)
"""For a webhook that gives no answer, which costs the whole time of an attempt."""


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1,localhost")


def test_a_body_that_is_accepted_is_posted_once_as_json_under_its_key() -> None:
    with hooked(200) as hook:
        found = post(hook.url, {"text": "é ≤ \ud800", "n": 1}, "the-key", QUICK)
    assert (found.delivered, found.attempts, found.why) == (True, 1, "answered 200")
    ((headers, body),) = hook.posts
    assert body == {"text": "é ≤ ?", "n": 1}
    assert headers["Content-Type"] == "application/json"
    assert headers["Idempotency-Key"] == "the-key"
    assert hook.paths == [PATH]


@pytest.mark.parametrize("trouble", [500, 503, 429, 0, -1], ids=["500", "503", "429", "reset", "hang"])
def test_what_may_pass_is_tried_again_under_the_same_key(trouble: int) -> None:
    with hooked(trouble, trouble, 204) as hook:
        found = post(hook.url, {}, "k", SILENT if trouble == -1 else QUICK)
    assert (found.delivered, found.attempts) == (True, 3)
    assert {headers["Idempotency-Key"] for headers, _ in hook.posts} == {"k"}


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 422])
def test_a_refusal_is_not_tried_again(status: int) -> None:
    with hooked(status) as hook:
        found = post(hook.url, {}, "k", QUICK)
    assert (found.delivered, found.attempts, found.why) == (False, 1, f"answered {status}")
    assert len(hook.posts) == 1


def test_patience_ends_after_its_attempts() -> None:
    with hooked(500) as hook:
        found = post(hook.url, {}, "k", QUICK)
    assert (found.delivered, found.attempts, found.why) == (False, 4, "answered 500")
    assert len(hook.posts) == 4


def test_nobody_listening_is_tried_again() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound but not listening: connections are refused
        found = post(f"http://127.0.0.1:{taken.getsockname()[1]}{PATH}", {}, "k", QUICK)
    assert (found.delivered, found.attempts) == (False, 4)
    assert found.why == "could not be reached: ConnectionRefusedError"


@pytest.mark.parametrize("form", ["seconds", "date"])
def test_retry_after_is_waited_for(form: str) -> None:
    value = "40" if form == "seconds" else format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)
    pauses: list[float] = []
    with hooked((429, {"Retry-After": value}), 200) as hook:
        found = post(hook.url, {}, "k", QUICK, pauses.append)
    assert (found.delivered, found.attempts) == (True, 2)
    (pause,) = pauses
    assert 20 <= pause <= 61


def test_a_wait_that_is_too_long_is_not_begun() -> None:
    pauses: list[float] = []
    with hooked((503, {"Retry-After": "3600"}), 200) as hook:
        found = post(hook.url, {}, "k", QUICK, pauses.append)
    assert (found.delivered, len(hook.posts), pauses) == (False, 1, [])
    assert found.why == "answered 503; no time is left to try again"


@pytest.mark.parametrize("value", ["soon", "", "-5", "1e9", "Wed, 99 Foo 2024", "²"])
def test_a_retry_after_that_says_nothing_is_passed_over(value: str) -> None:
    pauses: list[float] = []
    with hooked((429, {"Retry-After": value.encode("latin-1").decode("latin-1")}), 200) as hook:
        assert post(hook.url, {}, "k", QUICK, pauses.append).delivered
    assert max(pauses) <= QUICK.backoff


@pytest.mark.parametrize("answer", [-1, -2], ids=["silent", "dribbling"])
def test_an_answer_that_never_ends_is_given_up(answer: int) -> None:
    with hooked(answer) as hook:
        found = post(hook.url, {}, "k", RetryPolicy(attempts=2, timeout=0.3, backoff=0.01, deadline=60))
    assert (found.delivered, found.attempts) == (False, 2)
    assert "no answer" in found.why


def test_the_deadline_holds_for_all_attempts_together() -> None:
    with hooked(-1) as hook:
        found = post(hook.url, {}, "k", RetryPolicy(attempts=100, timeout=0.2, backoff=0.01, deadline=0.7))
    assert not found.delivered
    assert found.attempts <= 5


def test_pauses_grow_and_are_drawn_anew() -> None:
    policy = RetryPolicy(backoff=1.0)
    for attempt in (1, 2, 3):
        drawn = [policy.pause(attempt) for _ in range(200)]
        longest = 2.0 ** (attempt - 1)
        assert longest / 2 <= min(drawn) < 0.6 * longest
        assert 0.9 * longest < max(drawn) <= longest


def test_pauses_are_waited_for() -> None:
    pauses: list[float] = []
    with hooked(500) as hook:
        post(hook.url, {}, "k", RetryPolicy(attempts=3, timeout=30, backoff=10, deadline=120), pauses.append)
    first, second = pauses
    assert 5 <= first <= 10 <= second <= 20


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(status: int) -> None:
    with hooked(200) as other, hooked((status, {"Location": other.url})) as hook:
        found = post(hook.url, {"text": "x"}, "k", QUICK)
    assert other.paths == []
    assert (found.delivered, found.attempts) == (False, 1)
    assert found.why == f"answered {status}, a redirect, which is not followed"


def test_the_address_is_in_no_log_and_no_result(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    found = []
    for answer in (500, 404, 302, 0, -1):
        with hooked((answer, {"Location": f"http://127.0.0.1{PATH}", "X-Echo": PATH})) as hook:
            found.append(post(hook.url, {}, "k", RetryPolicy(2, 0.3 if answer == -1 else 30.0, 0.01, 60.0)))
    wrong = (
        f"http://127.0.0.1:1{PATH}",
        f"https://no-such-host.invalid{PATH}",
        f"file://{PATH}",
        f"ftp://127.0.0.1{PATH}",
        f"http://127.0.0.1{PATH}\r\nX: y",
        f"http://user:s3cr3t-t0ken@127.0.0.1{PATH}",
        f"http://[{PATH}",
        f"{PATH} is no address",
        f"http://127.0.0.1:99999{PATH}",
        f"http://\udcff{PATH}",
    )
    found += [post(url, {}, "k", RetryPolicy(2, 0.3, 0.01, 1.0)) for url in wrong]
    assert not any(one.delivered for one in found)
    told = caplog.text + "".join(one.why for one in found)
    assert "could not be reached" in told
    assert [part for part in ("s3cr3t", "T00", "services", "no-such-host") if part in told] == []


def self_signed(folder: Path) -> ssl.SSLContext:
    """A server's context with a certificate that nobody vouches for."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    certificate = builder.not_valid_before(now).not_valid_after(now + timedelta(days=1)).sign(key, hashes.SHA256())
    pem, private = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    (folder / "cert.pem").write_bytes(certificate.public_bytes(pem))
    (folder / "key.pem").write_bytes(key.private_bytes(pem, private, serialization.NoEncryption()))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return context


def test_a_certificate_that_cannot_be_verified_is_sent_nothing(tmp_path: Path) -> None:
    with hooked(200, tls=self_signed(tmp_path)) as hook:
        found = post(hook.url.replace("http://", "https://"), {}, "k", QUICK)
    assert (found.delivered, found.attempts) == (False, 1)
    assert found.why == "has a certificate that cannot be verified"
    assert hook.posts == []


def test_posting_ends_long_before_its_task_would_be_ended() -> None:
    assert RetryPolicy().deadline + RetryPolicy().timeout < alert.declared.resources.minutes * 60 / 2
