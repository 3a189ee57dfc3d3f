"""The baseline stage: the same reference again."""

from gatehouse.evaluation.baseline.stage import BaselineRequest, fit_baseline
from tests.evaluation.conftest import Bench


def test_the_baseline_alone(judged_bench: Bench) -> None:
    request = BaselineRequest(training_set=judged_bench.training_set, split=judged_bench.split)
    reference = fit_baseline(request, judged_bench.store).baseline
    assert reference.startswith("baselines/flights/")
    assert fit_baseline(request, judged_bench.store, force="again").baseline == reference
