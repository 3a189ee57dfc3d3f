"""Posting to a webhook: what is tried again and what is not, and that its address is told to nobody."""

import logging
import socket
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from gatehouse.operations.alerting import webhook
from gatehouse.operations.alerting.notice import post
from tests.operations.alerting.hook import PATH, hooked


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1,localhost")
    monkeypatch.setattr(webhook, "_BACKOFF", 0.001)


def test_a_body_that_is_accepted_is_posted_once_as_json_under_its_key() -> None:
    with hooked(200) as hook:
        delivery = post(hook.url, {"text": "é ≤ \ud800", "n": 1}, "the-key")
    assert (delivery.delivered, delivery.attempts, delivery.why) == (True, 1, "answered 200")
    ((headers, body),) = hook.posts
    assert body == {"text": "é ≤ ?", "n": 1}
    assert headers["Content-Type"] == "application/json"
    assert headers["Idempotency-Key"] == "the-key"
    assert hook.paths == [PATH]


@pytest.mark.parametrize("trouble", [500, 503, 429, 0, -1], ids=["500", "503", "429", "reset", "hang"])
def test_what_may_pass_is_tried_again_under_the_same_key(trouble: int) -> None:
    with hooked(trouble, trouble, 204) as hook:
        delivery = post(hook.url, {}, "k", timeout=1.0 if trouble == -1 else 30.0)
    assert (delivery.delivered, delivery.attempts) == (True, 3)
    assert {headers["Idempotency-Key"] for headers, _ in hook.posts} == {"k"}


@pytest.mark.parametrize("status", [301, 307, 400, 401, 403, 404, 410, 422])
def test_a_refusal_is_not_tried_again_and_a_redirect_not_followed(status: int) -> None:
    with hooked(200) as other, hooked((status, {"Location": other.url})) as hook:
        delivery = post(hook.url, {}, "k")
    assert (delivery.delivered, delivery.attempts, delivery.why) == (False, 1, f"answered {status}")
    assert len(hook.posts) == 1 and other.paths == []


def test_attempts_end() -> None:
    with hooked(500) as hook:
        delivery = post(hook.url, {}, "k", attempts=4)
    assert (delivery.delivered, delivery.attempts, delivery.why) == (False, 4, "answered 500")
    assert len(hook.posts) == 4
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound but not listening: connections are refused
        delivery = post(f"http://127.0.0.1:{taken.getsockname()[1]}{PATH}", {}, "k")
    assert (delivery.delivered, delivery.why) == (False, "could not be reached")


def test_retry_after_is_waited_for_within_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)
    with hooked((429, {"Retry-After": "20"}), (503, {"Retry-After": "3600"}), 200) as hook:
        assert post(hook.url, {}, "k").delivered
    assert max(pauses) <= webhook._LONGEST_PAUSE and 20 in pauses


def test_the_address_is_in_no_log_and_no_result(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    deliveries = []
    for answer in (500, 404, 302, 0, -1):
        with hooked((answer, {"Location": f"http://127.0.0.1{PATH}", "X-Echo": PATH})) as hook:
            deliveries.append(post(hook.url, {}, "k", 2, 0.3 if answer == -1 else 30.0))
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
    deliveries += [post(url, {}, "k", 2, 0.3) for url in wrong]
    assert not any(delivery.delivered for delivery in deliveries)
    text = caplog.text + "".join(delivery.why for delivery in deliveries)
    assert "could not be reached" in text
    assert [part for part in ("s3cr3t", "T00", "services", "no-such-host") if part in text] == []


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
        delivery = post(hook.url.replace("http://", "https://"), {}, "k", attempts=1)
    assert not delivery.delivered and delivery.why == "has a certificate that cannot be verified"
    assert hook.posts == []
