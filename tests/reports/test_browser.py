"""Pages in a real browser: what filters, keys and colours do, what is left without scripts, and what is never sent."""

from pathlib import Path

import pytest

from gatehouse.reports.charts import Series, line_chart
from gatehouse.reports.elements import Card, Entry, link, sign, table
from gatehouse.reports.page import Report, Verdict
from gatehouse.reports.row_charts import Dot, bar_chart, dot_chart
from gatehouse.reports.style import DARK, LIGHT
from tests.reports.browser import Browser, Page

NASTY = "<script>document.title='broken'</script>\"'‮abc" + "x" * 200
NAMES = ("candidate", "champion of the last quarter", "logistic regression", "boosted trees")
FACETS = {"severity": ("fail", "warn"), "table": ("flights", "weather", NASTY)}


def rgb(colour: str) -> str:
    return f"rgb({', '.join(str(int(colour[at : at + 2], 16)) for at in (1, 3, 5))})"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with a filter, anomalies and cards."""
    page = Report("Report", "of something", Verdict("fail", "It fails.", ("one", NASTY))).filters(FACETS)
    rows = [
        Entry(
            [sign(severity), link(f"c{at}", name), owner, 12345],
            f"a{at}",
            {"severity": [severity], "table": [where]},
            ("2 example rows", table([f"column {n}" for n in range(12)], [[NASTY] * 12], label="Examples")),
        )
        for at, (severity, where, name, owner) in enumerate(
            [
                ("fail", "flights", "dep_delay", "ops"),
                ("fail", "weather", "temp", "sky"),
                ("warn", NASTY, NASTY, "nobody"),
            ]
        )
    ]
    page.section("Anomalies").entries(["severity", "where", "owner", "rows"], rows)
    for where in FACETS["table"]:
        cards = [
            Card(
                name,
                f"c{at}",
                '<span class="kind">int64</span><span class="marks"></span>',
                f"body of {at}",
                {"severity": [severity], "table": [table_]},
            )
            for at, (severity, table_, name) in enumerate(
                [("fail", "flights", "dep_delay"), ("fail", "weather", "temp"), ("warn", NASTY, NASTY)]
            )
            if table_ == where
        ]
        page.section(f"Table {where}").cards(cards)
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(page.html())
    return path


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page as the other stages write it: wide tables, wide charts, no filter."""
    page = Report("Evaluation", "of a model", Verdict("refused", "one\ntwo"))
    page.section("Curves").figures(
        *((line_chart([Series(name, [(0, 0), (1, 1)]) for name in NAMES], "x", "y"), "A caption.") for _ in range(2))
    )
    page.section("Gate").figure(dot_chart([Dot("slice " * 6, 0.5, 0.4, 0.6)], "x"), "Wide.")
    page.section("Trials").table([f"parameter {at}" for at in range(14)], [list(range(14))])
    page.section("Drift").figure(bar_chart([("a_feature", 1.0)], 1.0), "Bars.").facts({"reference": "x" * 200})
    path = tmp_path_factory.mktemp("page") / "plain.html"
    path.write_text(page.html())
    return path


def shown(page: Page) -> list[str]:
    """Anchors of the entries and cards that can be seen."""
    found: list[str] = page.js(
        "[...document.querySelectorAll('[data-item]')].filter(e => e.offsetParent)"
        ".map(e => e.id || e.querySelector('.body').id)"
    )
    return found


def focused(page: Page) -> str:
    text: str = page.js("document.activeElement.closest('[data-item]')?.querySelector('.find')?.textContent ?? ''")
    return text


@pytest.mark.parametrize("dark", [False, True])
def test_nothing_is_requested_and_nothing_complains(browser: Browser, report: Path, plain: Path, dark: bool) -> None:
    for path in (report, plain):
        page = browser.page(dark=dark).open(path)
        assert page.requests == [path.as_uri()]
        assert page.console == []
        assert page.js("document.title") in ("Report", "Evaluation")


def test_the_policy_stops_a_script_that_is_not_ours(browser: Browser, report: Path, tmp_path: Path) -> None:
    altered = tmp_path / "altered.html"
    altered.write_text(report.read_text().replace("</main>", "<script>document.title = 'stolen'</script></main>"))
    page = browser.page().open(altered)
    assert page.js("document.title") == "Report"
    assert any("Content Security Policy" in line for line in page.console)


def test_the_search_filters_entries_and_cards(browser: Browser, report: Path) -> None:
    page = browser.page().open(report)
    everything = shown(page)
    page.press("/", "/")
    page.type("DEP fail")
    assert shown(page) == ["a0"]
    page.press("Escape")
    page.type("dep")
    assert shown(page) == ["a0", "c0"]
    assert page.js("document.querySelector('output').textContent") == "2 of 6 shown"
    assert page.js("document.querySelectorAll('.none:not([hidden])').length") == 2
    page.press("Escape")
    assert shown(page) == everything


@pytest.mark.parametrize(
    ("facet", "value", "left"),
    [
        ("severity", "1", ["a2", "c2"]),
        ("table", "1", ["a1", "c1"]),
        ("table", "2", ["a2", "c2"]),
    ],
)
def test_facets_filter_whatever_a_table_is_called(
    browser: Browser, report: Path, facet: str, value: str, left: list[str]
) -> None:
    page = browser.page().open(report)
    page.js(
        f"{{ const s = document.querySelector('select[data-facet={facet}]'); s.value = '{value}';"
        "s.dispatchEvent(new Event('input', {bubbles: true})); }"
    )
    assert shown(page) == left


def test_the_keyboard_reaches_the_search_and_the_first_match(browser: Browser, report: Path) -> None:
    page = browser.page().open(report)
    page.press("/", "/")
    assert page.js("document.activeElement.type") == "search"
    page.type("temp")
    page.press("Enter", "\r")
    assert "temp" in focused(page)
    assert page.js("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_tab_goes_in_order_and_enter_opens_a_card(browser: Browser, report: Path) -> None:
    page = browser.page().open(report)
    page.press("Tab")
    assert page.js("document.activeElement.className") == "skip"
    assert page.js("document.activeElement.getBoundingClientRect().top") >= 0
    page.press("Enter", "\r")
    assert page.js("document.activeElement.id") == "main"
    stops = []
    for _ in range(40):
        page.press("Tab")
        stops.append(page.js("document.activeElement.closest('.card')?.querySelector('.body').id ?? ''"))
        if stops[-1] == "c0":
            break
    assert stops[-1] == "c0"
    page.press("Enter", "\r")
    assert page.js("document.activeElement.closest('.card').open") is True


def test_a_link_opens_the_card_that_it_leads_to(browser: Browser, report: Path) -> None:
    page = browser.page().open(report)
    page.js("document.querySelector('a[href=\"#c1\"]').click()")
    page.js("new Promise(done => setTimeout(done, 50))")
    assert page.js("document.querySelector('#c1').closest('details').open") is True
    assert focused(page).startswith("temp")
    # Without the browser's own opening of what is linked to, which not all have.
    page.js("history.replaceState(null, '', '#c0'); dispatchEvent(new Event('hashchange'))")
    assert page.js("document.querySelector('#c0').closest('details').open") is True
    assert browser.page().open(report, "#c0").js("document.querySelector('#c0').closest('details').open") is True


def test_a_link_to_something_filtered_out_shows_it(browser: Browser, report: Path) -> None:
    page = browser.page().open(report)
    page.press("/", "/")
    page.type("dep")
    page.js("location.hash = '#c1'; new Promise(done => setTimeout(done, 50))")
    assert "c1" in shown(page)


def test_all_cards_open_and_close_at_once(browser: Browser, report: Path) -> None:
    page = browser.page().open(report)
    page.js("document.querySelector('button[data-open=\"1\"]').click()")
    assert page.js("document.querySelectorAll('.items [data-item] details[open], .card[open]').length") == 6
    page.js("document.querySelector('button[data-open=\"\"]').click()")
    assert page.js("document.querySelectorAll('details[open]').length") == 0


def test_printing_opens_everything_and_closes_it_again(browser: Browser, report: Path) -> None:
    page = browser.page().open(report)
    page.js("dispatchEvent(new Event('beforeprint'))")
    assert page.js("document.querySelectorAll('details:not([open])').length") == 0
    page.js("dispatchEvent(new Event('afterprint'))")
    assert page.js("document.querySelectorAll('details[open]').length") == 0
    page.print_media()
    assert page.js("getComputedStyle(document.querySelector('.filters')).display") == "none"


@pytest.mark.parametrize("width", [360, 700, 1000, 1400])
def test_no_page_scrolls_sideways(browser: Browser, report: Path, plain: Path, width: int) -> None:
    for path in (report, plain):
        page = browser.page(width, 800, phone=width == 360).open(path)
        page.js("document.querySelectorAll('details').forEach(each => { each.open = true; })")
        assert page.js("document.documentElement.scrollWidth") <= width
        assert page.js("innerWidth") == width
        widest = page.js(
            "Math.max(...[...document.querySelectorAll('main *')].filter(e => !e.closest('.scroll, svg'))"
            ".map(e => e.getBoundingClientRect().right))"
        )
        assert widest <= width


def test_on_a_phone_an_entry_is_a_card_with_its_names(browser: Browser, report: Path) -> None:
    page = browser.page(360, 800, phone=True).open(report)
    assert page.js("getComputedStyle(document.querySelector('.entries td')).display") == "grid"
    assert page.js("getComputedStyle(document.querySelector('.entries td'), '::before').content") == '"severity"'
    assert page.js("document.querySelector('.entries .scroll').scrollWidth") > 360
    # A shadow shows where more is: what covers it at an end moves along with the content, the shadow does not.
    style = "getComputedStyle(document.querySelector('.entries .scroll'))"
    assert page.js(f"{style}.backgroundAttachment") == "local, local, scroll, scroll"
    page.print_media()
    assert page.js(f"{style}.backgroundImage") == "none"


def test_the_names_of_a_legend_lie_beside_each_other_on_a_phone_and_on_a_desk(browser: Browser, plain: Path) -> None:
    for width in (360, 1280):
        page = browser.page(width, 800, phone=width == 360).open(plain)
        boxes = page.js(
            "[...document.querySelector('.legend').children].map(e => e.getBoundingClientRect())"
            ".map(b => [b.left, b.top, b.right, b.bottom])"
        )
        assert len(boxes) == 4
        assert all(right <= width for _, _, right, _ in boxes)
        apart = [
            one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]
            for at, one in enumerate(boxes)
            for other in boxes[:at]
        ]
        assert all(apart)


def test_the_contents_stay_in_sight_on_every_screen(browser: Browser, plain: Path) -> None:
    for width in (360, 800, 1280):
        page = browser.page(width, 600, phone=width == 360).open(plain)
        page.js("scrollTo(0, document.body.scrollHeight)")
        top, height, right = page.js(
            "(b => [b.top, b.height, b.right])(document.querySelector('.contents').getBoundingClientRect())"
        )
        assert 0 <= top < 30
        assert height < 50 if width < 1024 else right < 300


def test_text_in_charts_can_be_read_on_a_phone(browser: Browser, plain: Path) -> None:
    page = browser.page(360, 800, phone=True).open(plain)
    found = page.js(
        "[...document.querySelectorAll('figure svg[role=img]')].map(e => [e.getBoundingClientRect().width,"
        "e.viewBox.baseVal.width, parseFloat(getComputedStyle(e.querySelector('text')).fontSize)])"
    )
    assert len(found) == 2
    assert min(size * width / drawn for width, drawn, size in found) > 10.5
    assert all(width <= 328 for width, _, _ in found)


def test_a_sentence_in_a_table_is_not_squeezed_on_a_phone(browser: Browser, tmp_path: Path) -> None:
    said = "no column of the training set says when a feature was known, so nothing was replayed here"
    path = tmp_path / "checks.html"
    rows = [["could not run", "geographic_neighbours", 3, said], ["passed", "order", 4, ""]]
    path.write_text(Report("Checks").section("S").table(["", "check", "columns", "found"], rows).html())
    page = browser.page(360, 800, phone=True).open(path)
    assert page.js("document.querySelector('td.prose').getBoundingClientRect().width") >= 240
    assert page.js("getComputedStyle(document.querySelector('td.n'), '::before').content") == '"columns "'
    assert page.js("[...document.querySelectorAll('.scroll')].every(e => e.scrollWidth <= e.clientWidth)")
    assert page.js("document.documentElement.scrollWidth") <= 360


def test_charts_of_rows_fit_a_phone_and_their_names_keep_off_the_drawing(browser: Browser, plain: Path) -> None:
    for width in (360, 1280):
        page = browser.page(width, 800, phone=width == 360).open(plain)
        rows = page.js(
            "[...document.querySelectorAll('.row')].map(row => [...row.children].map(e => e.getBoundingClientRect())"
            ".flatMap(b => [b.left, b.right]))"
        )
        assert len(rows) > 3
        for name_left, name_right, lane_left, lane_right, value_left, value_right in rows:
            assert 0 <= name_left <= name_right <= lane_left < lane_right - 100
            assert lane_right <= value_left <= value_right <= min(width - 16, lane_left + 720)
        heights = page.js(
            "[...document.querySelectorAll('.row')].map(row => [row, ...row.children].map(e => e.offsetHeight"
            " ?? e.getBoundingClientRect().height))"
        )
        assert all(abs(row - max(22, name)) < 2 and abs(lane - row) < 2 for row, name, lane, _ in heights)
        assert page.js("[...document.querySelectorAll('figure .scroll')].every(e => e.scrollWidth <= e.clientWidth)")


@pytest.mark.parametrize(("dark", "colours"), [(False, LIGHT), (True, DARK)])
def test_light_and_dark_reach_every_page(
    browser: Browser, report: Path, plain: Path, dark: bool, colours: dict[str, str]
) -> None:
    for path in (report, plain):
        page = browser.page(dark=dark).open(path)
        assert page.js("getComputedStyle(document.body).backgroundColor") == rgb(colours["page"])
        assert page.js("getComputedStyle(document.body).color") == rgb(colours["ink"])
        assert page.js("getComputedStyle(document.querySelector('.verdict b')).color") == rgb(colours["bad"])


def test_without_scripts_everything_is_there_and_the_filter_is_not(browser: Browser, report: Path) -> None:
    page = browser.page(scripts=False).open(report)
    assert page.js("document.querySelector('.filters').offsetParent") is None
    assert shown(page) == ["a0", "a1", "a2", "c0", "c1", "c2"]
    page.js("document.querySelector('.card summary').click()")
    assert "body of 0" in page.js("document.querySelector('.card').innerText")


def test_everything_that_can_be_operated_has_a_name(browser: Browser, report: Path, plain: Path) -> None:
    for path in (report, plain):
        page = browser.page().open(path)
        unnamed = page.js(
            "[...document.querySelectorAll('a, button, input, select, summary, [tabindex=\"0\"], svg[role=img]')]"
            ".filter(e => !((e.ariaLabel || '').trim() || e.textContent.trim() || e.labels?.[0]?.textContent.trim()))"
            ".map(e => e.outerHTML.slice(0, 80))"
        )
        assert unnamed == []
        assert page.js("[...document.querySelectorAll('th')].every(each => each.scope)") is True
        assert page.js("document.documentElement.lang") == "en"
        assert page.js("document.querySelectorAll('h1').length") == 1
        small = page.js(
            "[...document.querySelectorAll('button, input, select, summary')].filter(e => e.offsetParent)"
            ".filter(e => e.getBoundingClientRect().height < 24).length"
        )
        assert small == 0
