"""The metric and the rule of one's own in docs/evaluation.md: measured, judged by, and part of the key."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from gatehouse.data.splitting.parts import read_part
from gatehouse.errors import ConfigurationError
from gatehouse.evaluation.spec import EvaluationSpec, GatePolicy
from gatehouse.evaluation.stage import evaluate
from gatehouse.metrics.catalogue import is_minimized, metric_named
from gatehouse.metrics.tasks import BINARY, REGRESSION
from gatehouse.store.builder_code import BuilderError
from gatehouse.training.predictor import Predictor
from gatehouse.training.spec import NetworkTraining, own_names
from gatehouse.training.stage import TrainRequest, train
from tests.evaluation.conftest import SPEC, Bench
from tests.source_tree import ROOT

COST, MARGIN = "shop.costs:cost", "shop.rules:margin"
GUIDE = (ROOT / "docs/evaluation.md").read_text()
BLOCKS = re.findall(r"```(?:python|yaml)\n# (\S+)\n(.*?)```", GUIDE, re.DOTALL)
POLICY = {"must_beat_baseline": [], "leakage_alarm": {}}


def written(key: str) -> dict[str, Any]:
    """The configuration of the guide that has a key."""
    (body,) = [
        body for _, text in BLOCKS if text.startswith(f"{key}:") and "shop." in text for body in [yaml.safe_load(text)]
    ]
    return dict(body)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The package of the guide, installed for one test."""
    folder = tmp_path / "installed" / "shop"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    for name, text in BLOCKS:
        if name.startswith("shop/"):
            (folder.parent / name).write_text(text)
    monkeypatch.syspath_prepend(str(folder.parent))
    metric_named.cache_clear()
    yield folder
    metric_named.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == "shop"]:
        del sys.modules[name]


def test_a_metric_of_ones_own_is_measured_with_intervals_in_slices_and_decides(judged_bench: Bench, shop: Path) -> None:
    good, bad, store = judged_bench.models["good"], judged_bench.models["bad"], judged_bench.store
    policy = GatePolicy.model_validate(POLICY | written("bars"))
    result = judged_bench.evaluate(bad, good, policy)
    part = read_part(store, judged_bench.training_set, judged_bench.split, "test", BINARY)
    classes = Predictor.load(store, good).predict(part.table) >= 0.5
    expected = float(np.where(part.labels > 0.5, 5.0 * ~classes, 1.0 * classes).mean())
    assert result.champion_metrics[COST] == pytest.approx(expected) and is_minimized(COST)
    broken = [reason.partition(":")[0] for reason in result.reasons]
    assert {f"champion {COST.partition(':')[0]}"} <= {*broken} and any(name.startswith("slice ") for name in broken)
    low, high = store.read_json(result.evaluation, "uncertainty.json")["intervals"]["champion"][COST]
    assert low < expected < high
    measured = store.read_json(result.evaluation, "slices.json")[0]["metrics"]["candidate"]
    assert COST in measured and "cost of a decision" in result_page(judged_bench, result.evaluation)


def result_page(bench: Bench, evaluation: str) -> str:
    from gatehouse.reports.contents import rendered

    return rendered(bench.store, evaluation).read_text()


def test_a_rule_of_ones_own_refuses_by_its_settings_and_terms(judged_bench: Bench, shop: Path) -> None:
    body = written("own_rules")
    for least, severity, verdict in ((0.01, "refuse", "refused"), (-1.0, "refuse", "pass"), (0.9, "warn", "pass")):
        body["own_rules"][MARGIN]["least"] = least
        body["rules"]["margin"]["severity"] = severity
        policy = GatePolicy.model_validate(POLICY | {"better_than_guessing": None, "slices": {}} | body)
        result = judged_bench.evaluate(judged_bench.models["bad"], policy=policy)
        assert result.verdict == verdict, (least, result)
        assert [text.partition(":")[0] for text in result.warnings] == ["margin roc_auc"] * (severity == "warn")
    assert "owner pricing" in result.warnings[0]


def test_an_edit_of_the_package_changes_the_keys_of_what_uses_it(bench: Bench, shop: Path) -> None:
    model = "models/m/sha256-" + "0" * 64
    policies = [GatePolicy.model_validate(POLICY | written(key)) for key in ("bars", "own_rules")]
    requests = [bench.request(model, policy=policy) for policy in policies]
    requests += [bench.request(model, spec=EvaluationSpec(metrics=(COST,))), bench.request(model)]
    training = NetworkTraining.model_validate({"stopping": {"epochs": 1, "metric": COST}})
    assert own_names(training) == (COST,)
    trained = TrainRequest.model_construct(spec=training)
    before = [evaluate.key(request) for request in requests]
    of_training = train.outside(trained) if train.outside else ""
    (shop / "costs.py").write_text((shop / "costs.py").read_text().replace("5.0", "6.0"))
    after = [evaluate.key(request) for request in requests]
    assert [old == new for old, new in zip(before, after, strict=True)] == [False, False, False, True]
    assert train.outside and train.outside(trained) != of_training


def test_what_is_wrong_is_said_with_its_place_before_anything_is_measured(judged_bench: Bench, shop: Path) -> None:
    policy = GatePolicy.model_validate(
        {"bars": {"shop.costs:none": {"max": 1}, "shop.rules:margin": {"max": 1}}, "own_rules": {MARGIN: {"most": 1}}}
    )
    first, second, third = policy.problems(BINARY)
    assert first.startswith("bars: shop.costs:none") and second.startswith("bars: shop.rules:margin")
    assert third.startswith(f"own_rules.{MARGIN}")
    (other,) = GatePolicy.model_validate(written("bars") | {"bars": {}, "slices": {}}).problems(REGRESSION)
    assert other.startswith("champion.metric: ")
    with pytest.raises(ConfigurationError, match="own_rules"):
        judged_bench.evaluate(judged_bench.models["good"], policy=policy)
    rules = (shop / "rules.py").read_text()
    (shop / "rules.py").write_text(rules.replace('f"margin {metric}"', '"bar"'))
    del sys.modules["shop.rules"]
    with pytest.raises(BuilderError, match="begins with 'margin'"):
        judged_bench.evaluate(judged_bench.models["good"], policy=GatePolicy.model_validate(written("own_rules")))
    with pytest.raises(BuilderError, match="elsewhere"):
        judged_bench.evaluate(judged_bench.models["good"], spec=SPEC.model_copy(update={"metrics": ("elsewhere.a:b",)}))


@pytest.mark.parametrize("name", ["cost", "shop costs:cost", "shop.costs:", "shop.costs:cost:more", "shop.costs.cost"])
def test_other_forms_of_names_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="metrics"):
        EvaluationSpec(metrics=(name,))
    with pytest.raises(ValueError, match="bars"):
        GatePolicy.model_validate({"bars": {name: {"min": 1}}})
    with pytest.raises(ValueError, match="own_rules"):
        GatePolicy.model_validate({"own_rules": {name: {}}})


def test_a_rule_of_ones_own_takes_no_name_of_another(shop: Path) -> None:
    for rules in ({"shop.rules:bar": {}}, {"shop.rules:margin": {}, "other.rules:margin": {}}):
        with pytest.raises(ValueError, match="names no other rule has"):
            GatePolicy.model_validate({"own_rules": rules})
