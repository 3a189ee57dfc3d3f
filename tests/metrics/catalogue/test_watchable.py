"""What training can watch: every task's own metrics, and nothing besides in the key of a model."""

import pytest
from pydantic import ValidationError

from gatehouse.errors import ConfigurationError
from gatehouse.metrics.catalogue.found import NAMES
from gatehouse.metrics.catalogue.watchable import WATCHABLE, watchable_metric
from gatehouse.metrics.tasks.found import TASKS
from gatehouse.store.stage import declared_stages
from gatehouse.training.spec import train_spec


def test_every_task_watches_what_can_be_watched() -> None:
    watched = {name for task in TASKS.values() for name in task.watched}
    assert watched <= set(WATCHABLE) < set(NAMES)
    assert all(watchable_metric(name).name == name for name in WATCHABLE)


def test_a_metric_that_only_evaluations_measure_is_in_no_models_key() -> None:
    keys = {name: set(declared_stages()[name].sources().modules) for name in ("train", "tune", "evaluate")}
    alone = {f"gatehouse.metrics.{name}" for name in set(NAMES) - set(WATCHABLE)}
    assert alone and alone <= keys["evaluate"]
    assert not alone & (keys["train"] | keys["tune"])


def test_what_cannot_be_watched_is_told_what_can() -> None:
    with pytest.raises(ConfigurationError, match=r"Training can watch accuracy, .*; found 'f1'"):
        watchable_metric("f1")


def test_a_name_of_another_program_is_told_ours() -> None:
    with pytest.raises(ValidationError, match=r"not AP \(did you mean average_precision\?\)"):
        train_spec({"stopping": {"metric": "AP"}})
