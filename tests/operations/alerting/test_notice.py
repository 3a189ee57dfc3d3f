"""The forms of a notice keep what Slack and Teams publish of their payloads, whatever is told."""

import json
from typing import Any

import pytest

from gatehouse.operations.alerting.notice import Notice, Tone, body_of, inert

LONG = "<!channel> & ``` [click](http://evil.example) " * 400
HUGE = Notice(
    title=f"Gatehouse, flights: {LONG}",
    tone="bad",
    lines=[LONG] * 8,
    facts={f"fact {number}": "&" * 900 for number in range(12)},
    links={f"place {number}": f"https://ui.example/{number}?a=1&b=<2>" for number in range(9)} | {"report": "/store/x"},
)
SMALL = Notice("Gatehouse, flights: training succeeded", "good", facts={"duration": "3 s", "cost": ""})


def require_slack(body: dict[str, Any]) -> None:
    """The rules of api.slack.com/reference/block-kit/blocks for what is used here."""
    assert set(body) == {"text", "blocks"} and 1 <= len(body["blocks"]) <= 50
    for block in body["blocks"]:
        if block["type"] == "header":
            assert block["text"]["type"] == "plain_text" and 1 <= len(block["text"]["text"]) <= 150
            continue
        assert block["type"] == "section" and ("text" in block) != ("fields" in block)
        texts = [block["text"]] if "text" in block else block["fields"]
        longest = 3000 if "text" in block else 2000
        assert 1 <= len(texts) <= 10
        for text in texts:
            assert text["type"] == "mrkdwn" and text["verbatim"] and 1 <= len(text["text"]) <= longest
            assert "<!" not in text["text"] and "<@" not in text["text"]


def require_teams(body: dict[str, Any]) -> None:
    """The rules of adaptivecards.io/explorer (1.4), and of Teams for cards by webhook, for what is used here."""
    # Teams takes 28 KB and, where it counts UTF-16, sees two bytes a character.
    assert 2 * len(json.dumps(body, ensure_ascii=False)) <= 28 * 1024
    assert body["type"] == "message"
    (attachment,) = body["attachments"]
    assert attachment["contentType"] == "application/vnd.microsoft.card.adaptive" and attachment["contentUrl"] is None
    card = attachment["content"]
    assert (card["type"], card["version"]) == ("AdaptiveCard", "1.4")
    for element in card["body"]:
        assert element["type"] == "RichTextBlock"
        for run in element["inlines"]:
            assert run["type"] == "TextRun" and isinstance(run["text"], str)
            assert set(run) <= {"type", "text", "weight", "size", "color", "fontType"}
            assert run.get("color", "Good") in ("Good", "Warning", "Attention")
    assert len(card["actions"]) <= 6
    for action in card["actions"]:
        assert action["type"] == "Action.OpenUrl" and action["url"].startswith("https://") and action["title"]


@pytest.mark.parametrize("notice", [HUGE, SMALL], ids=["huge", "small"])
def test_every_form_keeps_the_published_rules(notice: Notice) -> None:
    require_slack(body_of(notice, "slack", {"run": "r"}))
    require_teams(body_of(notice, "teams", {"run": "r"}))
    assert body_of(notice, "generic", {"run": "r"}) == {"run": "r", "text": notice.text}


def test_what_is_empty_is_not_shown() -> None:
    for form in ("slack", "teams"):
        shown = json.dumps(body_of(SMALL, form, {}))
        assert "duration" in shown and "cost" not in shown


def test_slack_links_the_web_and_names_other_places() -> None:
    told = json.dumps(
        body_of(Notice("t", "good", links={"KFP": "https://k/#/runs", "report": "/s/r.html"}), "slack", {})
    )
    assert "<https://k/#/runs|KFP>" in told and "report: `/s/r.html`" in told


@pytest.mark.parametrize(("tone", "color"), [("bad", "Attention"), ("warn", "Warning"), ("good", "Good")])
def test_a_card_shows_its_tone(tone: Tone, color: str) -> None:
    card = body_of(Notice("t", tone), "teams", {})["attachments"][0]["content"]
    assert card["body"][0]["inlines"][0]["color"] == color


def test_text_is_cut_before_it_is_escaped() -> None:
    told = body_of(Notice("t", "bad", ["&" * 5000]), "slack", {})["blocks"][-1]["text"]["text"]
    assert told.strip("`").rstrip("…").replace("&amp;", "") == "" and len(told) > 2800
    assert inert("<!here>") == "&lt;!here&gt;"
