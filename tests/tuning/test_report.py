"""The page of an experiment: its first lines, its sections, and values that must not break it."""

import re
from pathlib import Path
from typing import Any

from gatehouse.store.canonical import canonical_json
from gatehouse.store.store import ArtifactStore
from gatehouse.tuning.report import ExperimentView, drawn, markdown, page
from tests.tuning.experiments import about, trials


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
