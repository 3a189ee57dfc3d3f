"""A notice for people in the form that its webhook takes: plain JSON, Slack's blocks, or an adaptive card for Teams.

No value from data becomes a mention or a link: Slack's control characters are escaped, and what varies in a card stands
in text runs, which know no Markdown. Lengths keep what is published: Slack takes 50 blocks, 150 characters in a header,
3,000 in a section and 10 fields of 2,000; Teams takes 28 KB, which it may count in two bytes a character, and shows six
buttons.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from gatehouse.reports.format import shortened

Form = Literal["generic", "slack", "teams"]
"""What a webhook takes."""
When = Literal["fail", "warn", "always", "never"]
"""What is told: failures, warnings too, everything, nothing."""
Tone = Literal["bad", "warn", "good"]

_HEADER, _SECTION, _FIELD, _FIELDS = 150, 2900, 500, 10
_CARD_TEXT, _BUTTONS = 4000, 6
_SCHEMA = "http://adaptivecards.io/schemas/adaptive-card.json"
_COLORS: dict[Tone, str] = {"bad": "Attention", "warn": "Warning", "good": "Good"}
_SIGNS: dict[Tone, str] = {"bad": "✕", "warn": "!", "good": "✓"}


@dataclass(frozen=True)
class Notice:
    """What is told.

    Attributes:
        title: One line.
        tone: Whether it is bad news.
        lines: Why, in full.
        facts: Names and values beside it.
        links: Where a person reads on, by what is there: an address of the web, or any other place.
    """

    title: str
    tone: Tone
    lines: Sequence[str] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """All of it as plain text, a line each, with Slack's control characters escaped."""
        told = [*self.facts.items(), *self.links.items()]
        return inert("\n".join([self.title, *self.lines, *(f"{name}: {value}" for name, value in told if value)]))


def body_of(notice: Notice, form: Form, about: Mapping[str, Any]) -> dict[str, Any]:
    """What is posted.

    Args:
        notice: What is told.
        form: Of the webhook. Slack and Teams refuse fields that they do not know.
        about: For programs, in the generic form alone.
    """
    if form == "slack":
        return {"text": _cut_escaped(notice.title, _SECTION), "blocks": _blocks(notice)}
    if form == "teams":
        return {"type": "message", "attachments": [_attachment(notice)]}
    return {**about, "text": notice.text}


def inert(text: str) -> str:
    """Text in which no value from data can become a mention or a link (Slack's format: `<!channel>`, `<http://…>`)."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _blocks(notice: Notice) -> list[dict[str, Any]]:
    title = shortened(f"{_SIGNS[notice.tone]} {notice.title}", _HEADER)
    blocks: list[dict[str, Any]] = [{"type": "header", "text": {"type": "plain_text", "text": title, "emoji": False}}]
    facts = [(name, value) for name, value in notice.facts.items() if value]
    for at in range(0, len(facts), _FIELDS):
        fields = [
            _mrkdwn(f"*{inert(name)}*\n{_cut_escaped(value, _FIELD)}") for name, value in facts[at : at + _FIELDS]
        ]
        blocks.append({"type": "section", "fields": fields})
    if notice.lines:
        cause = "\n".join(notice.lines).replace("```", "'''")
        blocks.append({"type": "section", "text": _mrkdwn(f"```{_cut_escaped(cause, _SECTION - 6)}```")})
    places = [
        f"<{inert(place)}|{inert(name)}>" if _is_web(place) else f"{inert(name)}: `{inert(place)}`"
        for name, place in notice.links.items()
        if place and len(place) < _FIELD
    ]
    if places:
        blocks.append({"type": "section", "text": _mrkdwn("\n".join(places))})
    return blocks


def _mrkdwn(text: str) -> dict[str, Any]:
    """`verbatim` keeps Slack from making links and mentions of what looks like one."""
    return {"type": "mrkdwn", "text": text, "verbatim": True}


def _attachment(notice: Notice) -> dict[str, Any]:
    title = {
        "text": shortened(notice.title, _FIELD),
        "weight": "Bolder",
        "size": "Medium",
        "color": _COLORS[notice.tone],
    }
    body = [_paragraph(title)]
    places = {name: place for name, place in notice.links.items() if place and len(place) < _FIELD}
    told = [*notice.facts.items(), *((name, place) for name, place in places.items() if not _is_web(place))]
    body += [
        _paragraph({"text": f"{name}: ", "weight": "Bolder"}, {"text": shortened(value, _FIELD)})
        for name, value in told
        if value
    ]
    if notice.lines:
        body.append(_paragraph({"text": shortened("\n".join(notice.lines), _CARD_TEXT), "fontType": "Monospace"}))
    buttons = [
        {"type": "Action.OpenUrl", "title": name, "url": place} for name, place in places.items() if _is_web(place)
    ]
    card = {"$schema": _SCHEMA, "type": "AdaptiveCard", "version": "1.4", "body": body, "actions": buttons[:_BUTTONS]}
    return {
        "contentType": "application/vnd.microsoft.card.adaptive",
        "contentUrl": None,
        "content": {**card, "msteams": {"width": "Full"}},
    }


def _paragraph(*runs: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "RichTextBlock", "inlines": [{"type": "TextRun", **run} for run in runs]}


def _is_web(place: str) -> bool:
    return place.startswith(("https://", "http://"))


def _cut_escaped(text: str, longest: int) -> str:
    """Text that is escaped, at most `longest` characters after that; it is cut before, as half an escape is none."""
    kept = text
    while len(inert(kept)) > longest:
        kept = shortened(kept, max(1, len(kept) - (len(inert(kept)) - longest) // 5 - 1))
    return inert(kept)
