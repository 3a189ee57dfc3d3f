"""The integration suite at the gate: one that failed, or that the evaluation contradicts, refuses."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gatehouse.data.splitting.parts import read_part
from gatehouse.errors import ConfigurationError
from gatehouse.evaluation.gate import verdict_of
from gatehouse.evaluation.integration.spec import FAIL, FILE, NOT_CHECKED
from gatehouse.evaluation.recorded import rejudged
from gatehouse.evaluation.stage import EvaluateResult, evaluate
from gatehouse.metrics.tasks import BINARY
from gatehouse.registry.exempting.exemption import rules_of
from gatehouse.store.canonical import canonical_json
from gatehouse.training.scoring.predictor import Predictor
from tests.evaluation.conftest import LENIENT, Bench

STRICT = LENIENT.model_copy(update={"require_integration": True})


def _suite(
    bench: Bench,
    verdict: str = "pass",
    shift: float = 0.0,
    rows: slice = slice(0, 20),
    of: str = "good",
    unchecked: str = "a: b",
    online: str = "",
) -> str:
    """A suite of a candidate, whose golden predictions are off by `shift`."""
    part = read_part(bench.store, bench.training_set, bench.split, "test", BINARY)
    predicted = Predictor.load(bench.store, bench.models["good"]).predict(part.table)[rows] + shift
    with bench.store.workspace() as workspace:
        file = workspace / "golden.parquet"
        pq.write_table(pa.table({"row": part.rows[rows], "prediction": predicted}), file)
        details = {"verdict": verdict}
        details |= {"online": online} if online else {}
        made = {"model": bench.models[of], "split": bench.split, "training_set": bench.training_set}
        said = [("schema: off", FAIL)] * (verdict == "fail") + [(unchecked, NOT_CHECKED)]
        checks = [dict(zip(("check", "found"), text.split(": "), strict=True), verdict=one) for text, one in said]
        files: dict[str, Path | bytes | str] = {file.name: file, FILE: canonical_json(checks)}
        published = bench.store.publish("integrations", "x", files, derived_from=made, details=details)
    return str(published)


def _evaluated(bench: Bench, integration: str, policy: object = LENIENT) -> EvaluateResult:
    request = bench.request(bench.models["good"])
    return evaluate(request.model_copy(update={"integration": integration, "policy": policy}), bench.store)


def test_a_suite_that_passed_is_on_the_record(judged_bench: Bench) -> None:
    found = _evaluated(judged_bench, _suite(judged_bench), STRICT)
    assert (found.verdict, found.warnings) == ("pass", ("integration: a: b (not checked)",))
    assert "integration" in {rule.name for rule in rules_of(judged_bench.store, found.evaluation)}
    assert rejudged(judged_bench.store, found.evaluation, STRICT).verdict == "pass"


@pytest.mark.parametrize(
    ("suite", "reason"),
    [
        ({"verdict": "fail"}, "integration: expected that the candidate passes its suite, found schema: off"),
        (
            {"shift": 1e-16},
            "integration: expected that the candidate passes its suite, found golden batch: 20 of 20 rows score "
            "otherwise in the evaluation",
        ),
    ],
)
def test_a_suite_that_failed_refuses(judged_bench: Bench, suite: dict[str, float], reason: str) -> None:
    found = _evaluated(judged_bench, _suite(judged_bench, **suite))  # type: ignore[arg-type]  # A float or a text each.
    if "shift" in suite:
        assert found.reasons[0].startswith("integration: ") and "rows score otherwise" in found.reasons[0]
    else:
        assert found.reasons == (reason,)
    assert found.verdict == "refused"
    assert verdict_of(rules_of(judged_bench.store, found.evaluation)) == "refused"
    assert rejudged(judged_bench.store, found.evaluation, LENIENT).verdict == "refused"


def test_without_a_suite_the_policy_decides(judged_bench: Bench) -> None:
    plain = _evaluated(judged_bench, "")
    assert (plain.verdict, plain.warnings) == ("pass", ())
    assert rejudged(judged_bench.store, plain.evaluation, STRICT).not_measured == ("integration",)
    found = _evaluated(judged_bench, "", STRICT)
    assert (found.verdict, found.reasons) == (
        "refused",
        ("integration: expected that the candidate passes its suite, found was not given",),
    )


def test_a_policy_may_ask_for_the_comparison_of_online_features(judged_bench: Bench) -> None:
    asks = LENIENT.model_copy(update={"require_online": True})
    compared = _evaluated(judged_bench, _suite(judged_bench, online="pass"), asks)
    assert compared.verdict == "pass"
    assert "integration online" in {rule.name for rule in rules_of(judged_bench.store, compared.evaluation)}
    assert rejudged(judged_bench.store, compared.evaluation, asks).verdict == "pass"
    earlier = _evaluated(judged_bench, _suite(judged_bench))
    assert rejudged(judged_bench.store, earlier.evaluation, asks).not_measured == ("integration online",)
    unchecked = "online features: holds nothing of sales"
    missing = f"{unchecked} (not checked)"
    suite = _suite(judged_bench, unchecked=unchecked, online="not checked")
    unasked = _evaluated(judged_bench, suite)
    assert unasked.verdict == "pass" and rejudged(judged_bench.store, unasked.evaluation, asks).verdict == "refused"
    expected = "integration online: expected that online features were compared, found"
    assert _evaluated(judged_bench, _suite(judged_bench), asks).reasons == (f"{expected} a suite without this check",)
    assert _evaluated(judged_bench, suite, asks).reasons == (f"{expected} {missing}",)
    partly = _suite(judged_bench, unchecked=unchecked, online="pass")
    assert _evaluated(judged_bench, partly, asks).reasons == (f"{expected} {missing}",)
    untried = _evaluated(judged_bench, "", asks)
    assert untried.reasons == (f"{expected} the candidate was not tried",)
    plain = _evaluated(judged_bench, "")
    assert rejudged(judged_bench.store, plain.evaluation, asks).not_measured == ("integration online",)


def test_the_suite_of_another_candidate_is_refused(judged_bench: Bench) -> None:
    with pytest.raises(ConfigurationError, match="expected the integration tests of the model"):
        _evaluated(judged_bench, _suite(judged_bench, of="other"))
