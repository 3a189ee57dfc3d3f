"""The pages in a browser: log in, look, approve; what data says stays text, and no other site can act."""

import re
from collections.abc import Iterator

import pytest
import requests

from gatehouse.api.pipelines import ENDED, SUBMITTED
from gatehouse.evaluation.spec import GatePolicy
from gatehouse.kfp.local_run import PLAN
from gatehouse.registry.ledger import Ledger
from gatehouse.registry.promotion import tag
from tests.registry.gate import NAME
from tests.reports.browser import Browser, Page, launched
from tests.server.conftest import Served
from tests.server.serving import Client

COMPARED = f"/compare?first={NAME}:1&second={NAME}:2"
PLANTED = "<script>document.title = 'owned'</script><img src=x onerror=\"document.title='owned'\">'\""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with launched(tmp_path_factory.mktemp("chromium")) as running:
        yield running


def _logged_in(page: Page, who: Client, path: str = "/") -> Page:
    page.visit(who.address + path)
    page.js(f"document.getElementById('token').value = {who.secret!r}")
    return page.click("main button")


def _text(page: Page) -> str:
    result: str = page.js("document.body.innerText")
    return result


def test_a_person_logs_in_looks_and_approves(served: Served, browser: Browser) -> None:
    page = _logged_in(browser.page(), served.promoter)
    assert page.js("document.cookie") == ""
    assert "staging 2" in _text(page)
    assert "registered as version 2" in _text(page.click(".panel"))
    shown = _text(page.click(".panel"))
    assert f"{NAME}:2" in shown
    assert "0.73" in shown
    assert page.js("document.querySelectorAll('svg rect').length") == 5
    page.js("document.getElementById('reason').value = 'the slices hold'")
    shown = _text(page.click("button.yes"))
    assert "approved version 2" in shown
    assert "the slices hold" in shown
    word = Ledger(served.gate.store, NAME).state().approvals[-1]
    assert word.approval is not None
    assert (word.kind, word.reason, word.approval.by) == ("approved", "the slices hold", "paul")
    page.js("document.getElementById('reason').value = 'no, they do not'")
    page.click("button.no")
    assert Ledger(served.gate.store, NAME).state().approvals[-1].kind == "rejected"
    page.visit(served.address).click(".top form button")
    assert "Token" in _text(page.visit(served.address))
    assert not page.console


def test_what_data_says_stays_text(served: Served, browser: Browser) -> None:
    served.gate.approve(2, reason=PLANTED)
    tag(served.gate.store, NAME, 2, {"planted": PLANTED})
    page = _logged_in(browser.page(), served.promoter, f"/models/{NAME}/2")
    run = "20130115-081500-01ab"
    record = {"pipeline": "training", "arguments": {"window": PLANTED}, "reason": PLANTED, "until": "", "by": PLANTED}
    served.gate.store.record(f"runs/{run}/{SUBMITTED}", record | {"at": "2013-01-15T08:15:00Z"})
    served.gate.store.record(
        f"runs/{run}/{PLAN}", {"tasks": [{"task": "t", "stage": "snapshot", "title": PLANTED}], "objective": ""}
    )
    failure = {"error": "GatehouseError", "message": PLANTED, "exit_code": 1}
    served.gate.store.record(f"runs/{run}/snapshot.1.failed.json", failure | {"at": 1.0, "seconds": 1.0})
    served.gate.store.record(f"runs/{run}/{ENDED}", {"exit_code": 1, "failure": failure})
    for path in (f"/models/{NAME}/2", f"/models/{NAME}", "/runs", f"/runs/{run}"):
        assert PLANTED in _text(page.visit(served.address + path)), path
        assert "owned" not in page.js("document.title")
        assert page.js("document.querySelectorAll('main script, main img').length") == 0
    shown = _text(page.visit(f"{served.address}{COMPARED.replace(':2', PLANTED)}"))
    assert "<img src=x" in shown and "These are not two versions" in shown
    assert "owned" not in page.js("document.title")
    page.visit(f"{served.address}/login?next={PLANTED}")
    assert page.js("document.title").startswith("Log in")
    assert page.js("document.querySelector('[name=next]').value") == PLANTED
    assert not page.console


def _cookie(who: Client) -> dict[str, str]:
    return {"gatehouse": who.secret}


def test_no_other_site_can_act(served: Served) -> None:
    form = f"{served.address}/models/{NAME}/2/approve"
    for stamp in ({}, {"stamp": "0" * 64}):
        answer = requests.post(form, data={"reason": "x"} | stamp, cookies=_cookie(served.promoter), timeout=60)
        assert answer.status_code == 403
        assert "does not come from a page" in answer.text
    assert not Ledger(served.gate.store, NAME).state().approvals
    assert requests.get(f"{served.address}/v1/models", cookies=_cookie(served.reader), timeout=60).status_code == 401
    data = {"token": served.reader.secret, "next": "//example.com"}
    answer = requests.post(f"{served.address}/login", data=data, allow_redirects=False, timeout=60)
    assert answer.headers["Location"] == "/"
    for word in ("HttpOnly", "SameSite=strict"):
        assert word in answer.headers["Set-Cookie"]


def test_a_form_signs_the_verdict_that_its_page_showed(served: Served) -> None:
    page, gate = f"{served.address}/models/{NAME}/2", served.gate

    def form() -> dict[str, str]:
        shown = requests.get(page, cookies=_cookie(served.promoter), timeout=60).text
        return dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]+)"', shown))

    before, model = form(), gate.model(2)
    looser = GatePolicy(approval="manual", inconclusive="approval")
    gate.register(model, gate.evaluate(model, gate.model(1), policy=looser))
    for fields, signed in ((before, False), (before | {"verdict": ""}, False), (form(), True)):
        data = fields | {"reason": "the slices hold"}
        answer = requests.post(f"{page}/approve", data=data, cookies=_cookie(served.promoter), timeout=60)
        assert ("digest of its last verdict" in answer.text) != signed
        assert len(gate.state.approvals) == signed


def test_who_may_only_read_is_shown_no_form_and_cannot_send_one(served: Served) -> None:
    page = f"{served.address}/models/{NAME}/2"
    shown = requests.get(page, cookies=_cookie(served.reader), timeout=60)
    assert (shown.status_code, "Approve" in shown.text) == (200, False)
    assert served.reader.secret not in shown.text
    assert "Approve" in requests.get(page, cookies=_cookie(served.promoter), timeout=60).text
    assert "Approve" not in requests.get(f"{page[:-1]}1", cookies=_cookie(served.promoter), timeout=60).text
    sent = requests.post(f"{page}/approve", data={"reason": "x"}, cookies=_cookie(served.reader), timeout=60)
    assert (sent.status_code, "scope promote" in sent.text) == (403, True)


def test_a_report_is_shut_off_from_the_site(served: Served) -> None:
    drawn = served.gate.store.publish("profiles", "x", {"counts.json": '{"2013-01": 3}'})
    answer = requests.get(f"{served.address}/reports/{drawn}", cookies=_cookie(served.reader), timeout=60)
    assert answer.headers["Content-Security-Policy"].startswith("sandbox")
    assert "Content-Security-Policy" in answer.text
