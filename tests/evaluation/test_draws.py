"""Draws in pieces: the numbers are those of the drawn rows, whatever makes them, and however they are cut."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gatehouse.errors import WrongImageError
from gatehouse.evaluation import draws
from gatehouse.evaluation.bootstrap import Units, shuffled
from gatehouse.evaluation.draws import (
    GroupRates,
    Measure,
    PartMetrics,
    RangeRequest,
    Sample,
    ShuffledMetric,
    measure_range,
    measured_draws,
)
from gatehouse.evaluation.spec import GatePolicy
from gatehouse.evaluation.stage import evaluate
from gatehouse.metrics.catalogue import metric_named
from gatehouse.metrics.metric import Predictions
from gatehouse.metrics.tasks import BINARY, RANKING
from gatehouse.runtime.variables import ENGINE
from gatehouse.store.store import ArtifactStore
from tests.evaluation.conftest import SPEC, Bench
from tests.evaluation.test_own_code import COST, POLICY, shop, written

ROWS, SAMPLES, SEED = 240, 30, 5
RANDOM = np.random.default_rng(8)
LABELS = RANDOM.integers(0, 2, ROWS).astype(float)
SCORES = RANDOM.random(ROWS).round(2)
PARTS = RANDOM.integers(0, 3, ROWS), RANDOM.integers(0, 2, ROWS)
GROUPS = np.arange(ROWS) // 4
METRICS = ("average_precision", "calibration_error", "log_loss", "roc_auc")
NAMES = METRICS[:1], METRICS[2:], METRICS[1:3], METRICS[3:], METRICS
MEASURES: list[tuple[Measure, bool]] = [
    (PartMetrics(role="candidate", metrics=(METRICS,)), False),
    (PartMetrics(role="champion", metrics=NAMES), True),
    (GroupRates(role="champion", task="binary", classes=2), True),
    (ShuffledMetric(role="candidate", metric="log_loss", samples=SAMPLES), False),
]
"""Measures, and whether they need divisions of the rows."""
__all__ = ["shop"]


def sample(divided: bool = False, units: Units | None = None) -> Sample:
    models = {"candidate": BINARY.read(SCORES.clip(0.01, 0.99), None), "champion": BINARY.read(SCORES**2, None)}
    models["champion"] = models["champion"].decided(0.3)
    return Sample(LABELS, models, units or Units("pair", ROWS // 2, np.arange(ROWS) // 2), PARTS if divided else ())


def drawn_rows(units: Units, number: int) -> Any:
    """The rows of a draw, from the definition: units with replacement, each with all of its rows."""
    drawn = np.random.default_rng([SEED, number]).integers(0, units.number, units.number)
    of_row = np.arange(ROWS) if units.of_row is None else units.of_row
    return np.concatenate([np.flatnonzero(of_row == unit) for unit in drawn])


@pytest.mark.parametrize("units", [None, Units("row", ROWS)], ids=["pairs", "rows"])
def test_a_number_is_the_metric_of_the_rows_that_were_drawn(units: Units | None) -> None:
    whole, divided = sample(units=units), sample(True, units)
    flat, parts, rates, guessed = (
        measured_draws(divided if needs else whole, [measure], SAMPLES, SEED)[0] for measure, needs in MEASURES
    )
    for number in (0, 7, SAMPLES - 1):
        rows = drawn_rows(whole.units, number)

        def of(name: str, role: str, rows: Any = rows) -> float:
            return metric_named(name).measure(LABELS[rows], whole.predictions[role].take(rows))

        gaps = metric_named("calibration_error").groups
        places = {"average_precision": 0, "calibration_error": 1, "log_loss": 2 + gaps, "roc_auc": 3 + gaps}
        for name, place in places.items():
            # Bins of the calibration error are those of all rows.
            assert name == "calibration_error" or flat[number, place] == pytest.approx(of(name, "candidate"), abs=1e-12)
        own = [rows[PARTS[0][rows] == part] for part in range(3)]
        assert parts[number, 0] == pytest.approx(of("average_precision", "champion", own[0]))
        assert parts[number, 1:3].tolist() == pytest.approx([of(name, "champion", own[1]) for name in METRICS[2:]])
        last = rows[PARTS[1][rows] == 0]
        assert parts[number, 3 + gaps + 2] == pytest.approx(of("roc_auc", "champion", last))
        classes = whole.predictions["champion"].form("classes")
        by_name = rates[number].reshape(4, 3)
        assert by_name[0].tolist() == pytest.approx([classes[of_part].mean() for of_part in own])
        assert by_name[1].tolist() == pytest.approx([classes[of_part][LABELS[of_part] == 1].mean() for of_part in own])
        # Fifty shuffles for thirty draws: each draw has its own, and twenty are not used.
        dealt = [shuffled(whole.predictions["candidate"], ROWS, SEED, shuffle) for shuffle in range(50)]
        metric = metric_named("log_loss")
        drawn = [metric.measure(LABELS[rows], read.take(rows)) for read in dealt]
        (used,) = np.flatnonzero(np.isclose(drawn, guessed[number, 0], rtol=1e-12))
        assert guessed[number, 1] == pytest.approx(metric.measure(LABELS, dealt[used]))
    assert len(np.unique(guessed[:, 1])) == SAMPLES


@pytest.mark.parametrize(("draws_of_piece", "workers"), [(7, 2), (29, 1)])
@pytest.mark.parametrize("divided", [False, True])
def test_pieces_give_the_bits_of_one_process(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch, divided: bool, draws_of_piece: int, workers: int
) -> None:
    measures = [measure for measure, needs in MEASURES if needs == divided]
    expected = measured_draws(sample(divided), measures, SAMPLES, SEED, store)
    assert not list(store.references("pieces")), "few rows are measured in this process"
    monkeypatch.setattr(draws, "ROWS_DRAWN", draws_of_piece * ROWS + 1)
    monkeypatch.setenv(ENGINE, f'{{"workers": {workers}}}')
    found = measured_draws(sample(divided), measures, SAMPLES, SEED, store)
    assert [(of.tobytes(), of.shape) for of in found] == [(of.tobytes(), of.shape) for of in expected]
    assert len(list(store.objects.list("memo/measure_range"))) == 2 * -(-SAMPLES // draws_of_piece)


@pytest.mark.parametrize("groups", [None, GROUPS])
def test_a_sample_is_read_as_it_was_published(store: ArtifactStore, groups: Any) -> None:
    read: Predictions = BINARY.read(SCORES, None) if groups is None else RANKING.read(SCORES, groups)
    whole = Sample(LABELS, {"candidate": read, "champion": read}, Units.single(ROWS, groups), PARTS)
    found = Sample.read(store, whole.published(store), "champion")
    assert (found.labels == LABELS).all() and found.labels.dtype == LABELS.dtype
    assert [of.tolist() for of in found.divisions] == [of.tolist() for of in PARTS]
    assert found.units.number == whole.units.number and (found.units.of_row is None) == (groups is None)
    assert [*found.predictions] == ["champion"]
    for form, values in vars(read).items():
        other = getattr(found.predictions["champion"], form)
        assert (other is None) == (values is None) and (values is None or (other == values).all())


@pytest.mark.parametrize("draws_of_piece", [3, 11])
def test_pieces_do_not_change_an_evaluation_with_a_metric_of_ones_own(
    judged_bench: Bench, shop: Path, monkeypatch: pytest.MonkeyPatch, draws_of_piece: int
) -> None:
    policy = GatePolicy.model_validate(POLICY | written("bars"))
    spec = SPEC.model_copy(update={"protected": ("origin",), "slices": ("carrier", "origin"), "bootstrap_samples": 20})
    request = judged_bench.request(judged_bench.models["good"], judged_bench.models["bad"], policy, spec)
    whole = evaluate.function(request, judged_bench.store)
    monkeypatch.setattr(draws, "ROWS_DRAWN", draws_of_piece * 1500)
    monkeypatch.setenv(ENGINE, '{"workers": 2}')
    before = set(judged_bench.store.objects.list("memo/measure_range"))
    assert evaluate.function(request, judged_bench.store).evaluation == whole.evaluation
    calls = 4 + 1 + 2 + 2  # Metrics of four roles, guessing, and slices and fairness of two.
    made = set(judged_bench.store.objects.list("memo/measure_range")) - before
    assert len(made) == calls * -(-20 // draws_of_piece)


def test_code_of_ones_own_is_in_the_key_of_a_piece_and_a_worker_with_other_code_refuses(
    store: ArtifactStore, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = list[set[str]]()
    monkeypatch.setattr(draws, "ROWS_DRAWN", 10 * ROWS)
    measures: list[Measure] = [
        PartMetrics(role="candidate", metrics=((COST,),)),
        PartMetrics(role="candidate", metrics=(("log_loss",),)),
    ]
    for price in ("5.0", "6.0"):
        (shop / "costs.py").write_text((shop / "costs.py").read_text().replace("5.0", price))
        metric_named.cache_clear()
        measured_draws(sample(), measures, SAMPLES, SEED, store)
        keys.append(set(store.objects.list("memo/measure_range")))
    assert (len(keys[0]), len(keys[1])) == (6, 9)
    other = RangeRequest(sample="", measure=measures[0], first=0, last=1, seed=1, code="0" * 64)
    with pytest.raises(WrongImageError, match=COST):
        measure_range.function(other, store)
