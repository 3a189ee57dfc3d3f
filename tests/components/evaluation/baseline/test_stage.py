"""The baseline stage: the same reference again, and only for tasks that are judged."""

import pytest

from gatehouse.components.evaluation.baseline.stage import BaselineRequest, fit_baseline
from gatehouse.errors import ConfigurationError
from tests.components.evaluation.conftest import Bench


def test_the_baseline_alone(judged_bench: Bench) -> None:
    request = BaselineRequest(training_set=judged_bench.training_set, split=judged_bench.split)
    reference = fit_baseline(request, judged_bench.store).baseline
    assert reference.startswith("baselines/flights/")
    assert fit_baseline(request, judged_bench.store, force="again").baseline == reference


def test_a_task_that_is_not_judged_has_none(judged_bench: Bench) -> None:
    data = {"training_set": judged_bench.training_set, "split": judged_bench.split}
    with pytest.raises(ConfigurationError, match="of the task binary, not of regression"):
        fit_baseline(BaselineRequest(**data, task="regression"), judged_bench.store)
