"""The page of an experiment: its first lines, its sections, and values that must not break it."""

import re
import time
from pathlib import Path
from typing import Any

from gatehouse.store.canonical import canonical_json
from gatehouse.store.store import ArtifactStore
from gatehouse.tuning.report import ExperimentView, axis_of_values, drawn, markdown, page
from gatehouse.tuning.spec import Objective
from tests.reports.browser import launched
from tests.tuning.experiments import about, trials

NASTY = "<script>document.title='owned'</script>"


def text(html: str) -> str:
    """The text of a page, in one line."""
    return " ".join(re.sub(r"<[^>]+>", " ", re.sub(r"<style>.*?</style>", "", html, flags=re.DOTALL)).split())


def headings(html: str) -> list[str]:
    return re.findall(r"<h2[^>]*>([^<]*)", html)


def best_of(made: list[dict[str, Any]]) -> int:
    ended = [trial for trial in made if trial["state"] == "succeeded"]
    return int(min(ended, key=lambda trial: trial["values"]["log_loss"])["number"])


def test_a_published_experiment(tmp_path: Path) -> None:
    store, made = ArtifactStore.open(tmp_path), trials(40)
    body = about(best_trial=best_of(made), ended="goal", provisional=[10])
    files = {"experiment.json": canonical_json(body), "trials.json": canonical_json(made)}
    reference = str(store.publish("experiments", "flights", files))
    html = page(store, reference)
    for shown in (text(html), markdown(store, reference)):
        assert f"Trial {best_of(made)} of 40 is best" in shown and "a trial reached the goal" in shown
        assert "The result is provisional: 1 trial failed" in shown and "NonFiniteLossError" in shown
    assert headings(html) == [
        "Best trial", "History", "Learning curves", "Importance", "Parameters", "Trials", "Search space",
    ]  # fmt: skip
    assert re.findall(r"rung at step (\d+)", html) == ["1", "3"] and "fANOVA" in html
    assert "HyperbandPruner" in text(html.partition("Search space</h2>")[2])
    assert all(trial["reason"] in html and trial["model"] in html for trial in made)


def test_several_objectives_have_a_front_with_its_knee_and_constraints() -> None:
    made = trials(40)
    for trial in made:
        if trial["values"]:
            trial["values"]["latency_ms"] = trial["measures"]["latency_ms"]
            trial["feasible"] = trial["measures"]["latency_ms"] <= 5
    knee, infeasible = best_of(made), sum(not trial["feasible"] for trial in made)
    objectives = [{"metric": "log_loss", "minimize": True}, {"metric": "latency_ms", "minimize": True}]
    limit = [{"measure": "latency_ms", "at_most": 5}]
    body = about(objectives=objectives, early_stopping=None, best_trial=knee, front=[knee], constraints=limit)
    html = drawn(ExperimentView("flights", body, made))
    assert f"Trial {knee} is the knee of the Pareto front of 1 trials" in text(html)
    assert {"Pareto front", "Importance of latency_ms", "Constraints"} <= set(headings(html))
    assert html.count("breaks a constraint") == infeasible > 0


def test_the_ancestors_of_the_best_member_of_a_population() -> None:
    made = trials(9)
    made[8]["parent"], made[5]["parent"], made[2]["parent"] = 5, 2, None
    lineage = text(
        drawn(ExperimentView("flights", about(best_trial=8), made))
        .partition("Lineage of the best trial</h2>")[2]
        .partition("<h2")[0]
    )
    assert re.search(r"\b2 .*\b5 .*\b8 ", lineage)


def test_an_experiment_of_one_trial() -> None:
    html = drawn(ExperimentView("flights", about(best_trial=0), trials(1)))
    table = html.partition(">Trials</h2>")[2].partition("<section")[0]
    assert len(re.findall(r'<tr[^>]*><td class="n', table)) == 1


def test_only_values_that_are_much_worse_lie_beyond_a_chart() -> None:
    values = [0.5, *(0.6 + at / 1000 for at in range(30)), 4.0]
    axis, beyond = axis_of_values(Objective(metric="log_loss"), values)
    assert axis.low < 0.5 < axis.high < 1 and beyond == 1
    axis, beyond = axis_of_values(Objective(metric="roc_auc"), [-value for value in values])
    assert -1 < axis.low < -0.5 < axis.high and beyond == 1
    assert axis_of_values(Objective(metric="log_loss"), [0.51, 0.63, 0.68])[1] == 0


def test_it_fits_a_phone_and_runs_no_script_of_a_value(tmp_path: Path) -> None:
    made, spec = trials(30), about()
    spec["parameters"] = [parameter for parameter in spec["parameters"] if not parameter.get("when")]
    spec["parameters"][0] = spec["parameters"][0] | {"choices": [NASTY, "Бустинг 🌲‮abc", [1, 2], {"a": True}]}
    for trial in made:
        trial["parameters"]["model.architecture"] = spec["parameters"][0]["choices"][trial["number"] % 4]
        trial["reason"] = NASTY
    html = drawn(ExperimentView(f"flights {NASTY}", spec | {"best_trial": best_of(made)}, made))
    path = tmp_path / "page.html"
    # Without the page's own policy, so that nothing but escaping keeps the script from running.
    path.write_text(re.sub(r"<meta http-equiv=\"Content-Security-Policy\"[^>]*>", "", html))
    with launched(tmp_path / "chromium") as browser:
        seen = browser.page(width=390, phone=True).open(path)
        assert "owned" not in seen.js("document.title").replace(NASTY, "")
        assert seen.js("document.documentElement.scrollWidth") == 390
        assert seen.console == [] and "Бустинг 🌲" in seen.js("document.body.textContent")


def test_ten_thousand_trials_are_drawn_in_seconds_of_one_processor() -> None:
    began = time.process_time()
    html = drawn(ExperimentView("flights", about(best_trial=0), trials(10_000)))
    assert time.process_time() - began < 40  # 5 s on a quiet machine: this catches what grows with the square.
    assert "All 10,000 trials" in html and len(html) < 8_000_000
