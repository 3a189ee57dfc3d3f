"""Notices keep what Slack and Teams publish of their payloads, are retried, and their address is told to nobody."""

import json
import logging
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from gatehouse.operations import notice
from gatehouse.operations.notice import Notice, body_of, post
from tests.operations.hook import PATH, hooked

LONG = "<!channel> & ``` [click](http://evil.example) " * 400
HUGE = Notice(
    title=f"Gatehouse, flights: {LONG}",
    tone="bad",
    lines=[LONG] * 8,
    facts={f"fact {number}": "&" * 900 for number in range(12)},
    links={f"place {number}": f"https://ui.example/{number}?a=1&b=<2>" for number in range(9)} | {"report": "/store/x"},
)
SMALL = Notice(
    "Gatehouse, flights: done", "good", facts={"duration": "3 s", "cost": ""}, links={"KFP": "https://k/#/r"}
)


def require_slack(body: dict[str, Any]) -> None:
    """The rules of api.slack.com/reference/block-kit/blocks for what is used here."""
    assert set(body) == {"text", "blocks"} and 1 <= len(body["blocks"]) <= 50
    header, *sections = body["blocks"]
    assert header["text"]["type"] == "plain_text" and 1 <= len(header["text"]["text"]) <= 150
    for section in sections:
        text = section["text"]
        assert text["type"] == "mrkdwn" and text["verbatim"] and 1 <= len(text["text"]) <= 3000
        assert "<!" not in text["text"] and "<@" not in text["text"]


def require_teams(body: dict[str, Any]) -> None:
    """The rules of adaptivecards.io/explorer (1.4), and of Teams for cards by webhook, for what is used here."""
    # Teams takes 28 KB and, if it counts UTF-16, sees two bytes a character.
    assert 2 * len(json.dumps(body, ensure_ascii=False)) <= 28 * 1024
    (attachment,) = body["attachments"]
    assert attachment["contentType"] == "application/vnd.microsoft.card.adaptive" and body["type"] == "message"
    card = attachment["content"]
    assert (card["type"], card["version"]) == ("AdaptiveCard", "1.4")
    for element in card["body"]:
        assert element["type"] == "RichTextBlock"
        for run in element["inlines"]:
            assert run["type"] == "TextRun" and run["text"] and set(run) <= {"type", "text", "weight", "color"}
    assert len(card["actions"]) <= 6
    assert all(
        action["type"] == "Action.OpenUrl" and action["url"].startswith("https://") for action in card["actions"]
    )


@pytest.mark.parametrize("content", [HUGE, SMALL, Notice("t", "warn")], ids=["huge", "small", "title"])
def test_every_form_keeps_the_published_rules(content: Notice) -> None:
    require_slack(body_of(content, "slack", {"run": "r"}))
    require_teams(body_of(content, "teams", {"run": "r"}))
    generic = body_of(content, "generic", {"run": "r"})
    assert (generic["run"], generic["text"], generic["facts"]) == ("r", content.text, content.facts)
    assert (generic["message"].splitlines(), generic["links"]) == ([*content.lines], content.links)


def test_a_notice_shows_facts_links_and_tone_and_nothing_that_is_empty() -> None:
    slack, teams = (json.dumps(body_of(SMALL, form, {})) for form in ("slack", "teams"))
    assert "<https://k/#/r|KFP>" in slack and '"Good"' in teams
    for body in (slack, teams):
        assert "duration: 3 s" in body and "cost" not in body
    escaped = body_of(Notice("t", "bad", ["&" * 5000], links={"report": "/s/r.html"}), "slack", {})["blocks"][1]
    text = escaped["text"]["text"].removeprefix("report: /s/r.html\n")
    assert text.rstrip("…").replace("&amp;", "") == "" and len(text) > 2800, "no escape is cut"


def test_a_body_that_is_accepted_is_posted_once_as_json_under_its_key() -> None:
    with hooked(200) as hook:
        delivery = post(hook.url, {"text": "é ≤ \ud800", "n": 1}, "the-key")
    assert (delivery.delivered, delivery.attempts, delivery.why) == (True, 1, "answered 200")
    ((headers, body),) = hook.posts
    assert body == {"text": "é ≤ ?", "n": 1} and hook.paths == [PATH]
    assert (headers["Content-Type"], headers["Idempotency-Key"]) == ("application/json", "the-key")


@pytest.mark.parametrize("status", [500, 503, 429, 0, -1], ids=["500", "503", "429", "reset", "hang"])
def test_passing_errors_are_retried_under_the_same_key(status: int) -> None:
    with hooked(status, status, 204) as hook:
        delivery = post(hook.url, {}, "k", timeout=1.0 if status == -1 else 30.0)
    assert (delivery.delivered, delivery.attempts) == (True, 3)
    assert {headers["Idempotency-Key"] for headers, _ in hook.posts} == {"k"}


@pytest.mark.parametrize("status", [301, 307, 401, 404, 410])
def test_a_refusal_is_not_retried_and_a_redirect_not_followed(status: int) -> None:
    with hooked(200) as other, hooked((status, {"Location": other.url})) as hook:
        delivery = post(hook.url, {}, "k")
    assert (delivery.delivered, delivery.attempts, delivery.why) == (False, 1, f"answered {status}")
    assert len(hook.posts) == 1 and other.paths == []


def test_attempts_end() -> None:
    with hooked(500) as hook:
        delivery = post(hook.url, {}, "k", attempts=4)
    assert (delivery.delivered, delivery.attempts, len(hook.posts)) == (False, 4, 4)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # Bound but not listening: connections are refused.
        delivery = post(f"http://127.0.0.1:{taken.getsockname()[1]}{PATH}", {}, "k")
    assert (delivery.delivered, delivery.why) == (False, "could not be reached")


def test_retry_after_is_waited_for_within_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)
    with hooked((429, {"Retry-After": "20"}), (503, {"Retry-After": "3600"}), 200) as hook:
        assert post(hook.url, {}, "k").delivered
    assert max(pauses) <= notice._LONGEST_PAUSE and 20 in pauses


def test_a_post_hides_no_line_of_another_thread(caplog: pytest.LogCaptureFixture) -> None:
    with hooked(-1) as hook, ThreadPoolExecutor(1) as thread:
        delivery = thread.submit(post, hook.url, {}, "k", attempts=1, timeout=2.0)
        while not hook.posts:
            time.sleep(0.01)
        logging.getLogger("urllib3.connectionpool").warning("of a store")
        assert not delivery.result().delivered
    assert caplog.messages == ["of a store"]


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
        f"http://127.0.0.1{PATH}\r\nX: y",
        f"http://user:s3cr3t-t0ken@127.0.0.1{PATH}",
        f"http://[{PATH}",
        f"http://127.0.0.1:99999{PATH}",
        f"http://\udcff{PATH}",
    )
    deliveries += [post(url, {}, "k", 2, 0.3) for url in wrong]
    assert not any(delivery.delivered for delivery in deliveries)
    text = caplog.text + "".join(delivery.why for delivery in deliveries)
    assert "could not be reached" in text
    assert [part for part in ("s3cr3t", "T0TEAM", "services", "no-such-host") if part in text] == []
