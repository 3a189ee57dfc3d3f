"""What the gate never does, over generated policies and evidence, and against a naive gate written by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatehouse.evaluation.bootstrap import compared
from gatehouse.evaluation.gate import Evidence, applied_rules, verdict_of
from gatehouse.evaluation.spec import Bar, ChampionRule, GatePolicy, Terms
from gatehouse.metrics.catalogue import metric_named
from gatehouse.metrics.judging import profile_of
from gatehouse.metrics.tasks import BINARY
from tests.evaluation.test_gate import COMPARISONS, METRICS, MODEL, POLICIES

# Values on a grid, so that bounds are met exactly, and NaN.
VALUE = st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0, math.nan])
MEASURED = st.dictionaries(st.sampled_from(METRICS), VALUE)
WARNED = st.sets(st.sampled_from(["bar", "bar roc_auc", "baseline log_loss", "leakage alarm", "champion", "slice"]))
TRIED = st.builds(
    lambda policy, bars, warned: policy.model_copy(
        update={"bars": bars, "rules": {name: Terms(severity="warn") for name in sorted(warned)}}
    ),
    POLICIES,
    st.dictionaries(st.sampled_from(METRICS), st.builds(lambda least: Bar(min=least), st.sampled_from([0.25, 0.5]))),
    WARNED,
)
EVIDENCE = st.builds(
    lambda candidate, baseline, comparison, slices: Evidence(
        MODEL, candidate, baseline, comparison, {"roc_auc": slices}, True
    ),
    MEASURED,
    MEASURED,
    COMPARISONS,
    st.dictionaries(st.sampled_from(["a", "b", "c"]), VALUE),
)


def _broken_by_hand(policy: GatePolicy, evidence: Evidence) -> set[str]:
    """Names of the rules that are broken, said once more without the families."""
    broken = set()

    def better(name: str, value: float, other: float) -> bool:
        return value > other if metric_named(name).better == "higher" else value < other

    def worth(name: str) -> float:
        return evidence.candidate.get(name, math.nan)

    for name, bar in policy.bars.items():
        if not worth(name) >= (bar.min or 0.0):
            broken.add(f"bar {name}")
    for name in policy.must_beat_baseline or ():
        if not better(name, worth(name), evidence.baseline.get(name, math.nan)):
            broken.add(f"baseline {name}")
    if not worth("roc_auc") <= (policy.leakage_alarm or {})["roc_auc"]:
        broken.add("leakage alarm roc_auc")
    if (result := evidence.comparison) is not None and not result.worst_bound <= float(policy.champion.tolerance):
        broken.add(f"champion {result.metric}")
    limit, slices = (policy.slices or {})["roc_auc"], evidence.slices["roc_auc"]
    broken |= {f"slice {name}" for name, value in slices.items() if not value >= limit}
    return broken if slices else broken | {"slices roc_auc"}


def _warns(policy: GatePolicy, rule: str) -> bool:
    return any(rule == name or rule.startswith(f"{name} ") for name in policy.rules)


@given(TRIED, EVIDENCE)
def test_the_gate_is_the_naive_one(policy: GatePolicy, evidence: Evidence) -> None:
    rules = applied_rules(policy.resolved(profile_of(BINARY)), evidence)
    expected = _broken_by_hand(policy, evidence)
    assert {rule.name for rule in rules if not rule.holds} == expected
    assert {rule.name for rule in rules if rule.warns} == {name for name in expected if _warns(policy, name)}


@given(TRIED, EVIDENCE)
def test_no_model_passes_that_breaks_a_rule_which_refuses(policy: GatePolicy, evidence: Evidence) -> None:
    rules = applied_rules(policy.resolved(profile_of(BINARY)), evidence)
    refusing = {name for name in _broken_by_hand(policy, evidence) if not _warns(policy, name)}
    assert (verdict_of(rules) == "pass") == (not refusing)


@given(st.sampled_from(METRICS), EVIDENCE, st.booleans())
def test_a_metric_that_is_nan_or_missing_keeps_no_rule(metric: str, evidence: Evidence, missing: bool) -> None:
    values = dict(evidence.candidate) | {metric: math.nan}
    if missing:
        del values[metric]
    policy = GatePolicy(
        bars={metric: Bar(min=0.0)}, must_beat_baseline=(metric,), leakage_alarm={metric: 0.5}, slices={}
    )
    rules = applied_rules(policy.resolved(profile_of(BINARY)), replace(evidence, candidate=values, comparison=None))
    assert [rule.name for rule in rules if rule.holds] == []
    assert len(rules) == 3


@pytest.mark.parametrize("value", [math.nan, None])
def test_a_slice_that_is_nan_or_empty_keeps_no_rule(value: float | None) -> None:
    slices = {} if value is None else {"a": value}
    evidence = Evidence(MODEL, {}, {}, None, {"roc_auc": slices}, True)
    policy = GatePolicy(must_beat_baseline=(), leakage_alarm={}, slices={"roc_auc": 0.0})
    assert verdict_of(applied_rules(policy.resolved(profile_of(BINARY)), evidence)) == "refused"


LOSSES = st.lists(st.tuples(*[st.floats(0, 4)] * 3), min_size=2, max_size=12)


@given(LOSSES, st.floats(0, 1), st.integers(0, 9))
def test_who_is_better_on_each_row_never_does_worse_against_the_champion(
    losses: list[tuple[float, float, float]], tolerance: float, seed: int
) -> None:
    champion, candidate, gain = (np.array(column) for column in zip(*losses, strict=True))
    better = np.maximum(0.0, candidate - gain)
    rows = np.random.default_rng(seed).integers(0, len(champion), (40, len(champion)))
    policy = GatePolicy(
        must_beat_baseline=(),
        leakage_alarm={},
        slices={},
        champion=ChampionRule(metric="log_loss", tolerance=tolerance),
    )

    def verdict(loss: np.ndarray) -> str:
        draws = (loss[rows].mean(axis=1), champion[rows].mean(axis=1))
        result = compared(metric_named("log_loss"), float(loss.mean()), float(champion.mean()), draws, 0.95)
        return verdict_of(applied_rules(policy, Evidence(MODEL, {}, {}, result, {}, False)))

    assert (verdict(better) == "pass") >= (verdict(candidate) == "pass")
