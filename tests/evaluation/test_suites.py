"""The integration suite at the gate: one that failed, or that the evaluation contradicts, refuses."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gatehouse.data.splitting.parts import read_part
from gatehouse.errors import ConfigurationError
from gatehouse.evaluation.gate import verdict_of
from gatehouse.evaluation.result import EvaluateResult
from gatehouse.evaluation.spec import FAIL, NOT_CHECKED, SUITE_FILE
from gatehouse.evaluation.stage import evaluate
from gatehouse.metrics.tasks import BINARY
from gatehouse.registry.approval import rules_of
from gatehouse.registry.policy_trial import verdict_by
from gatehouse.store.canonical import canonical_json
from gatehouse.training.predictor import Predictor
from tests.evaluation.conftest import LENIENT, Bench

STRICT = LENIENT.model_copy(update={"require_integration": True})


def _suite(bench: Bench, verdict: str = "pass", shift: float = 0.0, of: str = "good") -> str:
    """A suite of a candidate, whose golden predictions are off by `shift`."""
    rows = slice(0, 20)
    part = read_part(bench.store, bench.training_set, bench.split, "test", BINARY)
    predicted = Predictor.load(bench.store, bench.models["good"]).predict(part.table)[rows] + shift
    with bench.store.workspace() as workspace:
        file = workspace / "golden.parquet"
        pq.write_table(pa.table({"row": part.rows[rows], "prediction": predicted}), file)
        made = {"model": bench.models[of], "split": bench.split, "training_set": bench.training_set}
        listed = [("schema: off", FAIL)] * (verdict == "fail") + [("a: b", NOT_CHECKED)]
        checks = [
            dict(zip(("check", "observed"), text.split(": "), strict=True), verdict=outcome) for text, outcome in listed
        ]
        files: dict[str, Path | bytes | str] = {file.name: file, SUITE_FILE: canonical_json(checks)}
        published = bench.store.publish("integrations", "x", files, derived_from=made, details={"verdict": verdict})
    return str(published)


def _evaluated(bench: Bench, integration: str, policy: object = LENIENT) -> EvaluateResult:
    request = bench.request(bench.models["good"])
    return evaluate(request.model_copy(update={"integration": integration, "policy": policy}), bench.store)


def test_a_suite_that_passed_is_on_the_record(judged_bench: Bench) -> None:
    result = _evaluated(judged_bench, _suite(judged_bench), STRICT)
    assert (result.verdict, result.warnings) == ("pass", ("integration: a: b (not checked)",))
    assert "integration" in {rule.name for rule in rules_of(judged_bench.store, result.evaluation)}
    assert verdict_by(judged_bench.store, result.evaluation, STRICT).verdict == "pass"


@pytest.mark.parametrize(
    ("suite", "reason"), [({"verdict": "fail"}, "schema: off"), ({"shift": 1e-16}, "golden batch: 20 of 20 rows")]
)
def test_a_suite_that_failed_or_that_the_evaluation_contradicts_refuses(
    judged_bench: Bench, suite: dict[str, Any], reason: str
) -> None:
    evaluated = _evaluated(judged_bench, _suite(judged_bench, **suite))
    assert evaluated.verdict == "refused" and reason in evaluated.reasons[0]
    assert verdict_of(rules_of(judged_bench.store, evaluated.evaluation)) == "refused"
    assert verdict_by(judged_bench.store, evaluated.evaluation, LENIENT).verdict == "refused"


def test_a_rule_on_a_suite_that_was_not_run_was_not_measured(judged_bench: Bench) -> None:
    evaluated = _evaluated(judged_bench, "")
    asks = STRICT.model_copy(update={"require_online": True})
    names = verdict_by(judged_bench.store, evaluated.evaluation, asks).not_measured
    assert (evaluated.verdict, names) == ("pass", ("integration", "integration online"))


def test_the_suite_of_another_candidate_is_refused(judged_bench: Bench) -> None:
    with pytest.raises(ConfigurationError, match="expected the integration tests of the model"):
        _evaluated(judged_bench, _suite(judged_bench, of="other"))
