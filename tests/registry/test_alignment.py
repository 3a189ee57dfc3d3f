"""Alignment of offline and live differences: the correlation, and the rule that a candidate is registered by."""

from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr

from gatehouse.evaluation.spec import AlignmentRule, GatePolicy
from gatehouse.registry.alignment import Candidate, correlation, past_candidates
from gatehouse.registry.approval import exempt, now
from gatehouse.registry.ledger import CANARY, CHAMPION, Ledger, LiveVerdict, Record
from gatehouse.registry.promotion import promote
from gatehouse.store.canonical import canonical_json
from tests.registry.gate import NAME, Gate

RULE = AlignmentRule(live="revenue", min_candidates=8)
POLICY = GatePolicy(alignment=RULE)


def _candidates(live: list[float]) -> list[Candidate]:
    return [Candidate(number, "log_loss", float(number), {"revenue": value}) for number, value in enumerate(live)]


def test_the_correlation_is_that_of_scipy_with_an_interval_that_holds_the_truth() -> None:
    draw = np.random.default_rng(1)
    for _ in range(4):
        live = draw.integers(0, 6, 12).astype(float).tolist()
        expected = spearmanr(range(12), live).statistic
        measured = correlation(_candidates(live), "revenue")
        assert measured.value == pytest.approx(expected) and measured.low is not None and measured.high is not None
        assert measured.low <= expected + 0.2 and measured.high >= expected - 0.2
    assert correlation(_candidates([1.0, 2.0]), "revenue").low is None
    assert correlation(_candidates([1.0] * 9), "revenue").value is None
    assert correlation(_candidates([1.0] * 9), "other").candidates == 0


def _history(gate: Gate, sign: float, number: int = 12) -> None:
    """A champion, and candidates that were judged beside it offline and live."""
    champion = gate.model(0)
    gate.run(champion)
    draw = np.random.default_rng(5)
    for seed in range(1, number + 1):
        model, worse = gate.model(seed), float(draw.normal())
        files: dict[str, Any] = {
            "verdict.json": {
                "verdict": "refused",
                "rules": [{"name": "bar x", "expected": "1", "observed": "0", "holds": False}],
                "comparison": {"metric": "log_loss", "worse_by": worse},
            },
            "metrics.json": {"candidate": {"log_loss": 0.5}},
        }
        evaluation = gate.store.publish(
            "evaluations",
            NAME,
            {name: canonical_json(body) for name, body in files.items()},
            derived_from={
                "model": model,
                "training_set": gate.training_set,
                "split": gate.split,
                "champion": champion,
            },
            configuration={"policy": {}, "spec": {}},
        )
        gate.register(model, str(evaluation))
        ledger = Ledger(gate.store, NAME)
        record = ledger.records()[-1]
        assert record.verdict
        admitted = record.verdict.model_copy(update={"verdict": "pass", "reasons": ()})
        version = len(ledger.state().versions) + 1
        ledger.append(Record(kind="registered", version=version, verdict=admitted), ledger.state())
        difference = {"name": "revenue", "worse_by": sign * worse + 0.1 * float(draw.normal()), "in_canary": 300}
        live = gate.store.publish(
            "live-evaluations",
            NAME,
            {"live.json": canonical_json({"differences": [difference], "slices": []})},
            derived_from={CHAMPION: champion, CANARY: model},
        )
        verdict = LiveVerdict(
            champion=champion, canary=model, evaluation=str(live), rules="r", verdict="go on", outcomes=300
        )
        ledger.append(Record(kind="compared", version=version, live=verdict), ledger.state())


def test_a_candidate_passes_where_offline_and_live_go_together_and_is_refused_where_they_do_not(gate: Gate) -> None:
    _history(gate, 1.0)
    assert len(past_candidates(gate.store, gate.state)) == 12
    result = gate.run(gate.model(99), policy=POLICY)
    assert result.decision == "approved" and not [text for text in result.warnings if text.startswith("alignment")]


def test_the_rule_that_is_broken_refuses_or_asks_a_person_and_can_be_exempted(gate: Gate) -> None:
    _history(gate, -1.0)
    model = gate.model(99)
    refused = gate.run(model, policy=POLICY)
    assert refused.decision == "refused" and refused.reasons[0].startswith("alignment: expected a rank correlation")
    exempt(gate.store, model, "alignment", now().date(), "revenue moved for another reason", by="grace")
    assert gate.run(model, policy=POLICY).decision == "approved"
    asking = GatePolicy(alignment=RULE, rules={"alignment": {"severity": "approval"}})
    waits = gate.run(gate.model(100), policy=asking)
    assert waits.decision == "awaiting approval" and any(text.startswith("alignment") for text in waits.warnings)
    gate.approve(waits.version)
    assert promote(gate.store, NAME, waits.version).champion == waits.version


def test_with_too_few_candidates_it_is_not_checked_and_says_so(gate: Gate) -> None:
    _history(gate, -1.0, 5)
    result = gate.run(gate.model(99), policy=POLICY)
    assert result.decision == "approved"
    assert any(text.startswith("alignment") and "not checked" in text for text in result.warnings)
