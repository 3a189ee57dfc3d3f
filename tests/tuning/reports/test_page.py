"""The page of an experiment: what it says first, what it draws, and that nothing in an experiment breaks it."""

import math
import re
import time
from pathlib import Path
from typing import Any

import pytest

from gatehouse.store.canonical import canonical_json
from gatehouse.store.store import ArtifactStore
from gatehouse.tuning.reports.page import axis_of_values, drawn, page
from gatehouse.tuning.reports.shown import Shown
from tests.reports.browser import Browser, launched
from tests.tuning.reports.experiments import about, trials

NASTY = "<script>document.title='owned'</script>"


def text(html: str) -> str:
    """What a reader sees, in one line."""
    return " ".join(re.sub(r"<[^>]+>", " ", re.sub(r"<style>.*?</style>", "", html, flags=re.DOTALL)).split())


def best_of(made: list[dict[str, Any]]) -> int:
    ended = [one for one in made if one["state"] == "succeeded"]
    return int(min(ended, key=lambda one: one["values"]["log_loss"])["number"])


def headings(html: str) -> list[str]:
    return re.findall(r"<h2[^>]*>([^<]*)", html)


def test_the_page_of_an_artifact_says_what_is_best_and_why_it_ended(tmp_path: Path) -> None:
    store, made = ArtifactStore.open(tmp_path), trials(40)
    body = about(best_trial=best_of(made), ended="goal")
    files = {"experiment.json": canonical_json(body), "trials.json": canonical_json(made)}
    html = page(store, str(store.publish("experiments", "flights", files)))
    shown = text(html)
    assert f"Trial {best_of(made)} of 40 is best" in shown
    assert "The experiment ended because a trial reached the goal." in shown
    assert headings(html) == [
        "Best trial", "History", "Learning curves", "Importance", "Parameters", "Trials", "Search space",
    ]  # fmt: skip


def test_several_objectives_have_a_front_with_its_knee() -> None:
    made = trials(40)
    for one in made:
        if one["values"]:
            one["values"]["latency_ms"] = one["measures"]["latency_ms"]
    knee = best_of(made)
    two = [{"metric": "log_loss", "minimize": True}, {"metric": "latency_ms", "minimize": True}]
    html = drawn(Shown("flights", about(objectives=two, early_stopping=None, best_trial=knee, front=[knee]), made))
    assert f"Trial {knee} is the knee of the Pareto front of 1 trials" in text(html)
    assert "Pareto front" in headings(html)
    assert "Importance of latency_ms" in headings(html)


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_few_trials_have_a_page(count: int) -> None:
    html = drawn(Shown("flights", about(), trials(count)))
    assert ("There is no trial." in html) == (count == 0)
    assert (
        len(re.findall(r'<tr[^>]*><td class="n', html.partition(">Trials</h2>")[2].partition("<section")[0])) == count
    )


@pytest.mark.parametrize("odd", [math.nan, math.inf, None, "NaN", 1e300])
def test_values_that_are_no_numbers_break_nothing(odd: Any) -> None:
    made = trials(12)
    made[3]["values"], made[3]["state"] = {"log_loss": odd}, "succeeded"
    made[4]["intermediate"] = [[1, odd], [2, 0.7]]
    html = drawn(Shown("flights", about(), made))
    assert "nan," not in html
    assert ",nan" not in html


def test_the_best_trial_is_in_every_chart_and_only_what_is_much_worse_lies_beyond() -> None:
    good, bad = [0.5, *(0.6 + at / 1000 for at in range(30))], [4.0]
    axis, beyond = axis_of_values("log_loss", [*good, *bad], 1)
    assert axis.low < 0.5 < axis.high < 1
    assert beyond == 1
    axis, beyond = axis_of_values("roc_auc", [-value for value in [*good, *bad]], -1)
    assert -1 < axis.low < -0.5 < axis.high
    assert beyond == 1
    few, beyond = axis_of_values("log_loss", [0.51, 0.63, 0.631, 0.632, 0.68], 1)
    assert few.low < 0.51 < 0.68 < few.high
    assert beyond == 0


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with launched(tmp_path_factory.mktemp("chromium")) as running:
        yield running


def test_it_fits_a_phone_and_runs_no_script_of_a_value(browser: Browser, tmp_path: Path) -> None:
    made, spec = trials(30), about()
    spec["parameters"] = [one for one in spec["parameters"] if not one.get("when")]
    spec["parameters"][0] = spec["parameters"][0] | {"choices": [NASTY, "Бустинг 🌲‮abc", [1, 2], {"a": True}]}
    spec["parameters"][1] = spec["parameters"][1] | {"name": NASTY}
    for one in made:
        at = one["number"] % 4
        one["parameters"]["model.architecture"] = spec["parameters"][0]["choices"][at]
        one["parameters"][NASTY] = one["parameters"].pop("data.train_fraction")
        one["reason"] = NASTY
    html = drawn(Shown(f"flights {NASTY}", spec, made))
    path = tmp_path / "page.html"
    # Without the page's own policy, so that nothing but escaping keeps the script from running.
    path.write_text(re.sub(r"<meta http-equiv=\"Content-Security-Policy\"[^>]*>", "", html))
    seen = browser.page(width=390, phone=True).open(path)
    assert "owned" not in seen.js("document.title").replace(NASTY, "")
    assert seen.js("document.documentElement.scrollWidth") == 390
    assert seen.console == []
    assert "Бустинг 🌲" in seen.js("document.body.textContent")


def test_ten_thousand_trials_are_drawn_in_seconds_of_one_processor() -> None:
    began = time.process_time()
    html = drawn(Shown("flights", about(), trials(10_000)))
    assert time.process_time() - began < 40  # 5 s on a quiet machine: this catches what grows with the square.
    assert "All 10,000 trials" in html
    assert len(html) < 8_000_000
