"""Candidates of every task through the whole stage: metrics, baselines, gate, curves, slices and page."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from gatehouse.errors import ConfigurationError
from gatehouse.evaluation.report import page
from gatehouse.evaluation.result import EvaluateResult
from gatehouse.evaluation.spec import EvaluationSpec, GatePolicy
from gatehouse.evaluation.stage import EvaluateRequest, by_class, evaluate
from gatehouse.metrics.judging import profile_of
from gatehouse.metrics.tasks import TASKS
from gatehouse.registry.policy_trial import verdict_by
from gatehouse.store.store import ArtifactStore
from tests.evaluation.candidates import publish_model
from tests.training.synthetic import publish_split, publish_training_set, table

LOSSES = {"multiclass": "multiclass", "regression": "mse", "ranking": "pairwise"}


class Bench:
    """A training set of one task, and models on it."""

    def __init__(self, task: str, folder: Path, slices: tuple[str, ...] = ()) -> None:
        self.task, self.store = task, ArtifactStore.open(folder)
        self.slices = slices or (("week",) if task == "ranking" else ("carrier",))
        rows = table(1500)
        reported: Mapping[str, Any] = {"task": task}
        noise = np.random.default_rng(5).normal(size=1500)
        number = (rows["distance"].to_numpy() - 1000) / 300 + 2 * rows["delay_rate"].to_numpy() + 0.3 * noise
        if task == "multiclass":
            label = np.digitize(number, [0.0, 1.5]).astype(np.int32)
            reported |= {"classes": ["<early>", "on time", "late"]}
        elif task == "ranking":
            label = np.maximum(np.round(number), 0.0)
            rows = rows.append_column("day", pa.array(np.arange(1500) // 10))
            rows = rows.append_column("week", pa.array(np.arange(1500) // 70 % 2))
            reported |= {"group": "day"}
        else:
            label = number
        self.labels = label
        rows = rows.set_column(rows.column_names.index("label"), "label", pa.array(label))
        self.training_set = publish_training_set(self.store, rows, **reported)
        parts = {"train": range(800), "validation": range(800, 1000), "test": range(1000, 1500)}
        self.split = publish_split(self.store, self.training_set, **parts)

    def model(self, steps: int, loss: str = "") -> str:
        """A model that was trained for some steps."""
        return publish_model(self.store, self.training_set, self.split, steps=steps, loss=loss or LOSSES[self.task])

    def rows_of(self, *classes: int) -> list[int]:
        """Row numbers below 800 whose label is one of these."""
        return np.flatnonzero(np.isin(self.labels[:800], classes)).tolist()

    def evaluate(self, model: str, champion: str = "", policy: GatePolicy | None = None) -> EvaluateResult:
        """Evaluate it under the task's own policy, unless told otherwise."""
        request = EvaluateRequest(
            model=model,
            champion=champion,
            split=self.split,
            spec=EvaluationSpec(slices=self.slices, min_slice_rows=20, bootstrap_samples=40),
            policy=policy or GatePolicy(leakage_alarm={}, must_beat_baseline=()),
        )
        return evaluate(request, self.store)


@pytest.fixture(scope="module", params=LOSSES)
def bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(request.param, tmp_path_factory.mktemp("tasks"))


def test_a_model_is_judged_by_the_metrics_of_its_task(bench: Bench) -> None:
    good, bad = bench.model(steps=120), bench.model(steps=2)
    better, worse = bench.evaluate(good, champion=bad), bench.evaluate(bad, champion=good)
    assert (better.verdict, better.reasons) == ("pass", ())
    objective = profile_of(TASKS[bench.task]).objective
    assert worse.verdict == "refused" and worse.reasons[-1].startswith(f"champion {objective}: expected not worse")
    result = bench.store.read_json(better.evaluation, "metrics.json")
    assert set(result) == {"candidate", "champion", "baseline", "constant"}
    assert all(np.isfinite(list(metrics.values())).all() for metrics in result.values())
    curves = bench.store.read_json(better.evaluation, "curves.json")
    assert all(set(value) == set(profile_of(TASKS[bench.task]).curves) for value in curves.values())
    drawn = page(bench.store, better.evaluation)
    assert ("rows whose label is 0 are left out" in drawn) == (bench.task == "regression")
    assert ("&lt;early&gt;" in drawn) == (bench.task == "multiclass") and "<early>" not in drawn and "<svg" in drawn


def test_the_baseline_must_be_beaten_in_the_objective_by_default(bench: Bench) -> None:
    refused = bench.evaluate(bench.model(steps=1), policy=GatePolicy())
    objective = profile_of(TASKS[bench.task]).objective
    assert any(reason.startswith(f"baseline {objective}") for reason in refused.reasons)
    units = 50 if bench.task == "ranking" else 500
    for least, verdict in ((units, "refused"), (units + 1, "inconclusive")):
        policy = GatePolicy(least_test_rows=least)
        assert verdict_by(bench.store, refused.evaluation, policy).verdict == verdict


@pytest.mark.parametrize(
    ("own", "classes", "expected"),
    [
        ("abc", "abc", [0.1, 0.2, 0.7]),
        ("abc", "axbc", [0.1, 0, 0.2, 0.7]),  # A class between others moves no probability.
        ("abc", "cb", [0.7, 0.2, 0.1]),
        ("", "", [0.1, 0.2, 0.7, 0]),
    ],
)
def test_probabilities_follow_the_names_of_classes(own: str, classes: str, expected: list[float]) -> None:
    assert by_class(np.array([[0.1, 0.2, 0.7]]), tuple(own), tuple(classes), 4).tolist() == [expected]


def test_a_slice_that_cuts_the_groups_of_a_ranking_is_refused(tmp_path: Path) -> None:
    bench = Bench("ranking", tmp_path, slices=("carrier",))
    with pytest.raises(ConfigurationError, match=r"slices: carrier: expected one value in each group"):
        bench.evaluate(bench.model(steps=1))


def test_a_champion_that_does_not_know_a_class_gives_it_no_chance(tmp_path: Path) -> None:
    bench = Bench("multiclass", tmp_path)
    split = publish_split(bench.store, bench.training_set, train=bench.rows_of(0, 1), test=range(1000, 1500))
    champion = publish_model(bench.store, bench.training_set, split, loss="multiclass")
    result = bench.evaluate(bench.model(steps=120), champion=champion)
    assert result.verdict == "pass" and result.champion_metrics["log_loss"] > 2 * result.metrics["log_loss"]
