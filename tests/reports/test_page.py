"""A report is one safe, self-contained page with the same bytes for the same content."""

import base64
import hashlib
import re
import subprocess
import sys
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gatehouse.reports.charts import Series, histogram, line_chart
from gatehouse.reports.elements import isolated, link, meter, shortened, sign, table
from gatehouse.reports.format import Html, percent
from gatehouse.reports.page import Card, Entry, Marked, Report, Verdict
from gatehouse.reports.row_charts import Dot, bar_chart, dot_chart

VOID = {"meta", "link", "input", "wbr"}


class Outline(HTMLParser):
    """Collects tags, attributes and text, and fails where tags do not close in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes.extend((name, value or "") for name, value in attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def outline(html: str) -> Outline:
    """The outline of a page; every tag closes."""
    parsed = Outline()
    parsed.feed(html)
    assert parsed.open == []
    return parsed


def page(text: str = "plain") -> str:
    """A page that uses everything, with `text` wherever text may stand."""
    report = Report(text, text, Verdict("refused", f"{text}\nsecond", (text,)))
    report.section(text, text, text).note(text).facts({text: text})
    report.facts({"reference": "models/a/sha256-" + "0" * 64})
    report.tiles({text: Marked(1, "bad")}).filters({"severity": ("fail", "warn"), "table": (text, f"{text} 2")})
    more = (text, table([text], [[text]], label=text))
    report.section(text).entries([text, "where"], [Entry([text, link("c1", text)], "a1", {"table": [text]}, more)])
    report.section(text).cards(
        [Card(text, "c1", Html(sign("fail") + meter(0.5, 0.2)), isolated(text), {"severity": ["fail"]})]
    )
    report.table([text, "n"], [[text, 1], [Marked(text, "bad"), None]], {1: "warn"}, {"n": percent})
    report.figure(line_chart([Series(text, [(0, 0), (1, 1)])], text, text), text)
    report.figures((bar_chart([(text, 1.0)], 0.5, marker_name=text), text))
    report.figures((histogram([0, 1], [(text, [1])], text, text), text))
    report.figures((dot_chart([Dot(text, 1.0)], text, [(text, 0.5)], [text]), text))
    return report.html()


def test_the_same_content_gives_the_same_bytes() -> None:
    assert page() == page()


def test_text_in_the_place_of_html_is_escaped() -> None:
    mark: Any = "<b>"
    report = Report("a").filters({}).entries(["x"], [Entry([mark], "a0", more=(mark, mark))])
    report.cards([Card(mark, "c0", mark, mark)]).figure(mark, mark)
    html = report.section("b").table(["x"], [[mark]]).html()
    assert "<b>" not in html and html.count("&lt;b&gt;") == 10


@given(st.text(min_size=1))
@example("`typed`")
def test_no_text_becomes_markup(text: str) -> None:
    plain, other = outline(page()), outline(page(text))
    # Empty text draws no paragraph, long names get a tooltip, underscores let a line break, backticks in a sentence
    # mark what somebody types.
    extra = {"title", "p", "li", "ul", "wbr", "small", "code"}
    assert [tag for tag in other.tags if tag not in extra] == [tag for tag in plain.tags if tag not in extra]
    page(text).encode("utf-8")


def test_text_is_shown_as_it_is() -> None:
    assert "<script>x</script>" in outline(page("<script>x</script>")).text
    assert outline(page("<script>x</script>")).tags.count("script") == 1


def test_nothing_outside_the_page_is_needed() -> None:
    html = page()
    parsed = outline(html)
    assert not {"img", "iframe", "object", "base"} & set(parsed.tags)
    assert not {"src", "onload", "style", "action"} & {name for name, _ in parsed.attributes}
    assert {value for name, value in parsed.attributes if name == "href" and not value.startswith("#")} == {"data:,"}
    assert not re.search(r"url\(|@import|https?://(?!www\.w3\.org/2000/svg)", html)


@given(st.text(min_size=1))
def test_every_link_on_the_page_has_its_one_target(text: str) -> None:
    attributes = outline(page(text)).attributes
    ids = [value for name, value in attributes if name == "id"]
    assert len(ids) == len(set(ids))
    assert {value[1:] for name, value in attributes if name == "href" and value != "data:,"} <= set(ids)


def test_the_policy_allows_this_style_and_this_script_and_nothing_else() -> None:
    def digest(text: str) -> str:
        return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()

    html = page()
    policy = _policy(html)
    style, script = (re.search(f"<{tag}>(.*?)</{tag}>", html, re.DOTALL) for tag in ("style", "script"))
    assert style and script
    assert policy["default-src"] == "'none'"
    assert policy["style-src"] == f"'sha256-{digest(style[1])}'"
    assert policy["script-src"] == f"'sha256-{digest(script[1])}'"
    assert "script-src" not in _policy(Report("T").html())
    assert "<script" not in Report("T").html()


def _policy(html: str) -> dict[str, str]:
    found = re.search(r'Content-Security-Policy" content="([^"]*)"', html)
    assert found
    return {name: value for name, _, value in (part.strip().partition(" ") for part in found[1].split(";"))}


def test_a_page_of_some_sections_has_a_table_of_contents_and_a_way_past_it() -> None:
    few, many = (Report("T") for _ in range(2))
    for at in range(4):
        many.section(f"Section {at}", count="7" if at == 1 else "")
    few.section("Only")
    assert "nav" not in outline(few.html()).tags
    html = many.html()
    assert re.findall(r'<li><a href="#(s\d)">', html) == ["s1", "s2", "s3", "s4"]
    assert html.index('class="skip" href="#main"') < html.index("<nav") < html.index('id="main"')
    assert '<a href="#s2">Section 1</a> <small>7</small>' in html


def test_a_long_text_is_cut_and_says_how_long_it_was() -> None:
    assert shortened("x" * 5000, 10) == "xxxxxxxxxx… (5,000 characters)"
    assert shortened("x" * 10, 10) == "x" * 10


def test_light_dark_and_paper() -> None:
    html = page()
    assert "prefers-color-scheme: dark" in html
    assert "@media print" in html


def test_the_verdict_comes_first() -> None:
    text = "".join(outline(Report("T", verdict=Verdict("fail", "because")).section("S").html()).text)
    assert text.index("fail") < text.index("because") < text.index("S", text.index("because"))


def test_what_somebody_types_is_set_as_code_in_sentences() -> None:
    verdict = Verdict("fail", "Run `gatehouse run <x>`.", todo="`a` and `b`, not ` alone.")
    html = Report("A page", verdict=verdict).section("One", "See `c`.").html()
    assert "Run <code>gatehouse run &lt;x&gt;</code>." in html and "<code>c</code>" in html
    assert "<code>a</code> and <code>b</code>, not ` alone." in html


def test_several_reasons_become_a_list() -> None:
    assert outline(Report("T", verdict=Verdict("fail", "one\ntwo\n")).html()).tags.count("li") == 2
    assert outline(Report("T", verdict=Verdict("fail", "one")).html()).tags.count("li") == 0


def test_warnings_and_what_was_not_checked_stand_in_the_head() -> None:
    warnings = tuple(f"warning {at}" for at in range(9))
    verdict = Verdict("pass", "All is well.", warnings=warnings, unchecked=("the moon",), todo="Sleep.", title="Kept")
    head = Report("T", verdict=verdict).section("S").html().split("</header>")[0]
    text = re.sub("<[^>]+>", "", head)
    assert all(told in text for told in ("Kept", "What to do: Sleep.", "9 warnings", "1 not checked", "the moon"))
    assert "warning 4" in text and "warning 5" not in text and "and 4 more, below" in text
    assert 'role="region"' not in Report("T").html()


def test_an_unknown_verdict_is_refused() -> None:
    with pytest.raises(ValueError, match="expected one of pass, fail, refused, warn, found 'maybe'"):
        Verdict("maybe")


def test_columns_of_numbers_are_aligned_and_formatted() -> None:
    html = Report("T").table(["name", "rate"], [["a", 0.25], ["b", None]], formats={"rate": percent}).html()
    assert '<td class="n">25.0 %</td>' in html
    assert '<td class="n">–</td>' in html
    assert "<td>a</td>" in html


def test_a_column_that_is_not_all_numbers_is_text() -> None:
    assert '<td class="n">' not in Report("T").table(["a"], [[1], ["x"]]).html()


def test_rows_and_cells_can_stand_out() -> None:
    html = Report("T").table(["a", "b"], [["x", Marked(1, "best")]], {0: "bad"}).html()
    assert '<tr class="bad">' in html
    assert '<td class="n best">1</td>' in html


def test_a_row_of_the_wrong_length_is_refused() -> None:
    with pytest.raises(ValueError, match="expected 2 cells a row, found 1 in row 1"):
        Report("T").table(["a", "b"], [[1, 2], [1]])


def test_an_empty_table_has_its_headers() -> None:
    assert "a" in outline(Report("T").table(["a"], []).html()).text


def test_references_are_set_in_a_fixed_width() -> None:
    assert 'class="mono"' in Report("T").facts({"model": "models/a/sha256-" + "0" * 64}).html()
    assert 'class="mono"' not in Report("T").facts({"model": "a"}).html()


def test_reports_need_only_the_standard_library() -> None:
    program = (
        "import sys; before = set(sys.modules); import gatehouse.reports.page, "
        "gatehouse.reports.charts; "
        "print(sorted({name.split('.')[0] for name in set(sys.modules) - before} "
        "- set(sys.stdlib_module_names) - {'gatehouse'}))"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "[]"


def test_a_tile_of_one_thing_has_no_plural() -> None:
    drawn = (
        Report("a").tiles({"tables": Marked(1, ""), "rules judged": 1, "rows": 2, "features drifted": "1 of 2"}).html()
    )
    assert [f"<dt>{name}</dt>" in drawn for name in ("table", "rule judged", "rows", "features drifted")] == [True] * 4
