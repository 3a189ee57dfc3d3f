"""From findings to the decision: what asks for a new model, what only alarms, what the model's hold takes back."""

import pytest
from pydantic import ValidationError

from gatehouse.monitoring.decision import Finding, decide
from gatehouse.monitoring.spec import DataDriftSpec, MonitoringSpec, PerformanceSpec, RetrainSpec

DRIFTED = Finding("data drift", "", "alarm", "found 40%", value=0.4, alarm=0.2)
COLUMN = Finding("data drift", "wind", "moved", "a PSI of 3", kind="numeric", value=3.0, alarm=0.25, weight=0.4)
LABELS = Finding("label drift", "label rate", "alarm", "expected 0.2, found 0.5")
HOLDS = Finding("performance", "ROC AUC", "quiet", "the model holds: 0.7 at the gate, now 0.7", holds=True)
DECAYS = Finding("performance", "ROC AUC", "alarm", "the model decays")
BROKEN = Finding("quality", "wind", "alarm", "80% are missing", kind="numeric")


def test_drift_and_decay_ask_for_a_new_model_and_say_why() -> None:
    decision = decide(MonitoringSpec(), [DRIFTED, COLUMN, DECAYS])
    assert (decision.decision, decision.triggers) == ("retrain", ("decay", "drift"))
    assert decision.reasons == ("performance, ROC AUC: the model decays", "data drift: found 40%")


def test_where_the_model_holds_drift_of_inputs_only_warns() -> None:
    decision = decide(MonitoringSpec(), [DRIFTED, COLUMN, HOLDS])
    assert (decision.decision, decision.alarms) == ("keep", ())
    assert "no alarm, as ROC AUC: the model holds" in decision.warnings[0]
    strict = MonitoringSpec(data_drift=DataDriftSpec(unless_holds=False))
    assert decide(strict, [DRIFTED, COLUMN, HOLDS]).decision == "retrain"
    assert decide(MonitoringSpec(), [LABELS, HOLDS]).decision == "retrain"


def test_what_is_no_trigger_alarms_and_asks_for_nothing() -> None:
    by_decay = MonitoringSpec(retrain=RetrainSpec(on=("decay",)))
    assert decide(by_decay, [DRIFTED]).decision == "keep" and decide(by_decay, [DRIFTED]).alarms
    assert decide(MonitoringSpec(), [BROKEN]).decision == "keep"
    assert decide(MonitoringSpec(), [BROKEN]).alarms == ("quality, wind: 80% are missing",)
    assert decide(MonitoringSpec(retrain=RetrainSpec(on=())), [DECAYS]).decision == "keep"


def test_what_could_not_be_judged_is_told() -> None:
    decision = decide(MonitoringSpec(), [Finding("performance", "", "not judged", "no model was given"), DRIFTED])
    assert decision.unchecked == ("performance: no model was given",) and decision.decision == "retrain"


def test_decay_needs_a_check_that_sees_it() -> None:
    off = {"performance": None, "calibration": None, "retrain": RetrainSpec(on=("decay",))}
    with pytest.raises(ValidationError, match=r"retrain\.on"):
        MonitoringSpec(**off)
    assert MonitoringSpec(**off | {"performance": PerformanceSpec()}).performance
