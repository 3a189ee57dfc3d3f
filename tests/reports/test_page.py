"""A page is safe, self-contained and readable, and the same bytes for the same content."""

import base64
import hashlib
import re
from html.parser import HTMLParser
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from gatehouse.reports.page import Verdict, environment, render

EVERYTHING = """
{{ p.facts({text: text, "reference": "models/a/sha256-0"}) }}
{{ p.tiles({text: Cell(1, "bad")}) }}
{% call p.section(text, text, text) %}{{ p.note(text) }}
{{ p.table([text, "n"], [[text, 1], [Cell(text, "bad", text), none]], ["n"], {1: "warn"}) }}{% endcall %}
{% call p.section("Charts") %}
{{ p.figures([(line_chart([Series(text, [(0, 0), (1, 1)])], text, text), text)]) }}
{{ p.figure(bar_chart([(text, 1.0)], [(text, 0.5)]), text) }}
{{ p.figure(histogram([0, 1], [(text, [1])], text, text), text) }}
{{ p.figure(dot_chart([Dot(text, 1.0)], text, [(text, 0.5)], [text]), text) }}
{% call p.folded(text) %}{{ text|breaking }}{{ text|prose }}{{ text|cut(9) }}{% endcall %}
{% endcall %}
{{ p.made_from({text: text}) }}
"""


class Outline(HTMLParser):
    """Collects tags, attributes and text, and fails where tags do not close in order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes.extend((name, value or "") for name, value in attrs)
        if tag not in ("meta", "link", "wbr"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def drawn(body: str = "", title: str = "T", verdict: Verdict | None = None, **values: Any) -> str:
    source = f'{{% extends "report.html" %}}{{% block body %}}{body}{{% endblock %}}'
    return render(environment().from_string(source), title, verdict=verdict, **values)


def everything(text: str = "plain") -> str:
    return drawn(EVERYTHING, text, Verdict("refused", f"{text}\nsecond", (text,), (text,), (text,), text), text=text)


@given(st.text(min_size=1))
@example("`typed`")
@example("<script>x</script>")
@example("\ud800\x00")
def test_no_text_becomes_markup(text: str) -> None:
    plain, other = Outline(everything()), Outline(everything(text))
    # Empty text has no paragraph, underscores let a line break, and backticks set code.
    extra = {"p", "li", "ul", "wbr", "small", "code"}
    assert [tag for tag in other.tags if tag not in extra] == [tag for tag in plain.tags if tag not in extra]
    everything(text).encode("utf-8")
    assert not {"src", "onload", "style", "action"} & {name for name, _ in other.attributes}
    ids = [value for name, value in other.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    assert {value[1:] for name, value in other.attributes if name == "href" and value != "data:,"} <= set(ids)


def test_text_is_shown_as_it_is_and_the_same_content_gives_the_same_bytes() -> None:
    html = everything("<script>x</script>")
    assert "<script>x</script>" in Outline(html).text and "script" not in Outline(html).tags
    assert html == everything("<script>x</script>")
    assert "a\ufffdb\ufffdc" in drawn("{{ text }}", text="a\ud800b\x00c")


def test_nothing_outside_the_page_is_needed_and_the_policy_allows_its_style_alone() -> None:
    html = everything()
    assert not re.search(r"url\(|@import|https?://(?!www\.w3\.org/2000/svg)", html)
    policy = Outline(html).attributes[Outline(html).attributes.index(("http-equiv", "Content-Security-Policy")) + 1][1]
    style = re.search("<style>(.*?)</style>", html, re.DOTALL)
    assert style
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert policy.startswith("default-src 'none';") and f"style-src 'sha256-{digest}'" in policy
    assert "script" not in policy and "script" not in Outline(html).tags


def test_the_verdict_comes_first_with_warnings_and_what_was_not_checked() -> None:
    warnings = [f"warning {number}" for number in range(9)]
    verdict = Verdict("pass", "Run `a <x>`.", (), warnings, ["the moon"], "Sleep, not ` alone.", "Kept")
    head = drawn('{% call p.section("S") %}{% endcall %}', verdict=verdict).split("</header>")[0]
    text = re.sub("<[^>]+>", "", head)
    assert all(part in text for part in ("Kept", "What to do: Sleep, not ` alone.", "9 warnings", "1 not checked"))
    assert "<code>a &lt;x&gt;</code>" in head
    assert "warning 4" in text and "warning 5" not in text and "and 4 more, below" in text
    assert 'role="region"' not in drawn()
    assert [Outline(drawn(verdict=Verdict("fail", text))).tags.count("li") for text in ("one\ntwo\n", "one")] == [2, 0]
