"""Pages in a real browser: keys, links, colours, phones, paper, and that nothing is sent."""

from pathlib import Path

import pytest

from gatehouse.data.statistics.measurement import Measurement
from gatehouse.data.validation.anomalies import Anomaly
from gatehouse.data.validation.report import drawn as validation_page
from gatehouse.reports.page import Verdict
from tests.reports.browser import Browser
from tests.reports.test_page import drawn

NASTY = "<script>document.title='broken'</script>\"'‮abc" + "x" * 200
PLAIN = """
{% call p.section("Curves") %}
{% set lines = [] %}
{% for name in ("candidate", "champion of the last quarter", "logistic regression", "constant") %}
{% do lines.append(Series(name, [(0, 0), (1, 1)])) %}
{% endfor %}
{{ p.figures([(line_chart(lines, "x", "y"), "A caption."), (line_chart(lines, "x", "y"), "A caption.")]) }}
{% endcall %}
{% call p.section("Gate") %}{{ p.figure(dot_chart([Dot("slice " * 6, 0.5, 0.4, 0.6)], "x"), "Wide.") }}{% endcall %}
{% call p.section("Trials") %}{{ p.table(columns, [columns]) }}{% endcall %}
{% call p.section("Checks") %}{{ p.table(["", "check", "columns", "found"], checks) }}{% endcall %}
{% call p.section("Drift") %}{{ p.figure(bar_chart([("a_feature", 1.0)], [("alarm", 1.0)]), "Bars.") }}
{{ p.facts({"reference": "x" * 200}) }}{% endcall %}
"""


@pytest.fixture(scope="module")
def cards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with anomalies and cards, of names that are no good."""
    statistics = {"type": "string", "nulls": 1, "values": [[NASTY, 3], ["b", 1]], "other": 0}
    example = {f"column {number}": NASTY for number in range(12)}
    anomalies = [
        Anomaly("flights", "min", name, severity, "ops", "at least 0", "one", 2, ({"row": 1} | example,))
        for name, severity in (("dep_delay", "fail"), (NASTY, "warn"))
    ]
    verdict = {"judged": 9, "not_judged": [NASTY]}
    measured = Measurement({"flights": {"dep_delay": statistics, NASTY: statistics}}, {}, {"flights": 4})
    path = tmp_path_factory.mktemp("page") / "cards.html"
    snapshot = {"snapshot": "snapshots/s/sha256-0", "as_of": "2024-01-10T00:00:00+00:00"}
    path.write_text(validation_page(snapshot, anomalies, verdict, measured))
    return path


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with wide tables, sentences in tables, and wide charts."""
    path = tmp_path_factory.mktemp("page") / "plain.html"
    sentence = "no column of the training set says when a feature was known, so nothing was replayed here"
    checks = [["could not run", "availability", 3, sentence], ["passed", "order", 4, ""]]
    columns = [f"parameter {number}" for number in range(14)]
    path.write_text(drawn(PLAIN, "Evaluation", Verdict("refused", "one\ntwo"), columns=columns, checks=checks))
    return path


@pytest.mark.parametrize(("dark", "colour"), [(False, "rgb(255, 255, 255)"), (True, "rgb(18, 22, 28)")])
def test_nothing_is_requested_and_nothing_complains(
    browser: Browser, cards: Path, plain: Path, dark: bool, colour: str
) -> None:
    for path in (cards, plain):
        page = browser.page(dark=dark).open(path)
        assert (page.requests, page.console) == ([path.as_uri()], [])
        assert page.js("document.title") in ("Validation against the contract", "Evaluation")
        assert page.js("getComputedStyle(document.body).backgroundColor") == colour


def test_the_policy_stops_every_script(browser: Browser, plain: Path, tmp_path: Path) -> None:
    altered = tmp_path / "altered.html"
    altered.write_text(plain.read_text().replace("</main>", "<script>document.title = 'stolen'</script></main>"))
    page = browser.page().open(altered)
    assert page.js("document.title") == "Evaluation"
    assert any("Content Security Policy" in line for line in page.console)


def test_keys_and_links_open_cards_without_a_script(browser: Browser, cards: Path) -> None:
    page = browser.page(scripts=False).open(cards)
    page.press("Tab")
    assert page.js("document.activeElement.className") == "skip"
    assert page.js("document.activeElement.getBoundingClientRect().top") >= 0
    page.press("Enter", "\r")
    assert page.js("document.activeElement.id") == "main"
    for _ in range(40):
        page.press("Tab")
        if page.js("document.activeElement.matches('.card > summary')"):
            break
    page.press("Enter", "\r")
    assert page.js("document.querySelector('#c0').closest('details').open") is True
    page.js("document.querySelector('a[href=\"#c1\"]').click()")
    for _ in range(100):
        if page.js("document.querySelector('#c1').closest('details').open"):
            break
    assert page.js("document.querySelector('#c1').closest('details').open") is True
    assert browser.page().open(cards, "#c0").js("document.querySelector('#c0').closest('details').open") is True


@pytest.mark.parametrize("width", [360, 700, 1000, 1400])
def test_no_page_scrolls_sideways(browser: Browser, cards: Path, plain: Path, width: int) -> None:
    for path in (cards, plain):
        page = browser.page(width, 800, phone=width == 360).open(path)
        page.js("document.querySelectorAll('details').forEach(element => { element.open = true; })")
        assert page.js("document.documentElement.scrollWidth") <= width
        widest = page.js(
            "Math.max(...[...document.querySelectorAll('main *')].filter(e => !e.closest('.scroll, svg'))"
            ".map(e => e.getBoundingClientRect().right))"
        )
        assert widest <= width


def test_the_contents_stay_in_sight_and_legends_and_rows_do_not_overlap(browser: Browser, plain: Path) -> None:
    for width in (360, 800, 1280):
        page = browser.page(width, 600, phone=width == 360).open(plain)
        boxes = page.js(
            "[...document.querySelector('.legend').children].map(e => e.getBoundingClientRect())"
            ".map(b => [b.left, b.top, b.right, b.bottom])"
        )
        assert len(boxes) == 4
        for index, (left, top, right, bottom) in enumerate(boxes):
            assert right <= width
            assert all(right <= b[0] or b[2] <= left or bottom <= b[1] or b[3] <= top for b in boxes[:index])
        rows = page.js(
            "[...document.querySelectorAll('.row')].map(row => [...row.children].map(e => e.getBoundingClientRect())"
            ".flatMap(b => [b.left, b.right]))"
        )
        for _, name_right, lane_left, lane_right, value_left, value_right in rows:
            assert name_right <= lane_left < lane_right - 100
            assert lane_right <= value_left <= value_right <= width - 16
        page.js("scrollTo(0, document.body.scrollHeight)")
        top, height, right = page.js(
            "(b => [b.top, b.height, b.right])(document.querySelector('.contents').getBoundingClientRect())"
        )
        assert 0 <= top < 30
        assert height < 50 if width < 1024 else right < 300
