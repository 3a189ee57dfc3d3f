"""The verbs of `gatehouse models`."""

import re

import pytest
from typer.testing import CliRunner

from gatehouse.cli.models import app
from gatehouse.errors import ConfigurationError, GatehouseError
from gatehouse.project.place import find
from gatehouse.registry.approval import ApprovalError, now
from gatehouse.registry.promotion import PromotionError
from gatehouse.store.eraser import erase, plan_erasure
from gatehouse.store.records import whoami
from gatehouse.store.reference import Reference
from tests.registry.gate import MANUAL, NAME, Gate


def _call(gate: Gate, *words: str) -> str:
    result = CliRunner().invoke(app, [*words, "--store", gate.store.address])
    if isinstance(result.exception, GatehouseError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return str(result.output)


def _short(reference: str) -> str:
    return Reference.parse(reference).short


@pytest.fixture
def two(gate: Gate) -> Gate:
    gate.run(gate.model(1))
    gate.run(gate.model(2), policy=MANUAL)
    return gate


def test_list_names_versions_aliases_and_references(two: Gate) -> None:
    text = _call(two, "list")
    lines = text.splitlines()
    for line, alias, model in ((1, "champion", two.model(1)), (2, "staging", two.model(2))):
        assert lines[line].split()[:2] == [f"{NAME}:{line}", alias] and model.startswith(lines[line].split()[-1])
    assert "roc_auc 0." in lines[1] and re.search(r" 20\d\d-\d\d-\d\d \d\d:\d\d ", lines[1])
    erase(two.store, plan_erasure(two.store, Reference.parse(two.model(1)), only=True), "request 17")
    text = _call(two, "list")
    assert text.splitlines()[1].split()[1:3] == ["champion,", "erased"]


def test_a_model_without_versions_is_listed_and_explained(gate: Gate) -> None:
    gate.run(gate.model(1), good=False)
    assert f"{NAME} has no version" in _call(gate, "list")
    for text in (f"{NAME}:1", f"{NAME}@champion"):
        with pytest.raises(ConfigurationError, match=f"`gatehouse models show {NAME}`"):
            find(gate.store, text)


def test_a_version_is_named_in_one_way(two: Gate) -> None:
    first, second = two.model(1), two.model(2)
    for text, model in ((f"{NAME}:1", first), (f"{NAME}@champion", first), (":2", second), ("@staging", second)):
        assert str(find(two.store, text)) == model
        assert model in _call(two, "show", text)
    for text, place in (
        (f"{NAME}:3", f"has no version 3: expected {NAME}:1 to {NAME}:2"),
        (f"{NAME}@canary", f"{NAME}@canary: .*expected {NAME}@champion or {NAME}@staging"),
        (f"{NAME}@boss", f"{NAME}@boss: "),
        ("nobody:1", "found 'nobody'"),
    ):
        with pytest.raises(ConfigurationError, match=place):
            find(two.store, text)
    with pytest.raises(ConfigurationError, match=f"expected {NAME}:1 to {NAME}:2"):
        _call(two, "explain", NAME)


def test_an_exemption_is_shown_wherever_the_verdict_is(gate: Gate) -> None:
    model, until = gate.model(1), str(now().date())
    gate.run(model, good=False)
    words = ("--rule", "bar roc_auc", "--until", until, "--reason", "a pilot")
    exemption = f"exempted from bar roc_auc until {until} by {whoami()}: a pilot"
    assert exemption in _call(gate, "exempt", _short(model), *words)
    assert gate.run(model, good=False).warnings == (exemption,)
    for verb in (("show",), ("show", ":1"), ("explain", ":1")):
        assert exemption in _call(gate, *verb), verb
    with pytest.raises(ConfigurationError, match="found 'tomorrow'"):
        _call(gate, "exempt", ":1", "--rule", "bar roc_auc", "--until", "tomorrow")


def test_show_prints_the_ledger_with_reasons_and_the_lineage_of_a_version(gate: Gate) -> None:
    gate.run(gate.model(2), good=False)
    gate.run(gate.model(1))
    text = _call(gate, "show")
    assert "registered as version 1" in text and "version 1 is champion" in text
    assert "refused models/delays/" in text and "bar roc_auc: expected at least 0.7, found 0.6. Look for" in text
    assert gate.state.verdicts[0][1].reasons == ("bar roc_auc: expected at least 0.7, found 0.6",)
    text = _call(gate, "show", f"{NAME}:1")
    assert "judged 1 other candidates before" in text
    assert gate.training_set in text and "snapshots/raw/sha256-" in text


def test_promote_rollback_and_archive(two: Gate) -> None:
    first, second = (f"the champion is {_short(two.model(seed))}" for seed in (1, 2))
    with pytest.raises(ApprovalError):
        _call(two, "promote")
    text = _call(two, "approve", "--reason", "approved on Monday")
    assert f"{NAME}:2 is approved by " in text and f"promote {NAME}:2, or the promotion pipeline\n" in text
    assert f"{NAME}:2 is promoted to canary; {first}" in _call(two, "promote", "--to", "canary")
    assert second in _call(two, "promote")
    assert _call(two, "list").splitlines()[1].split()[:2] == [f"{NAME}:1", "replaced"]
    assert first in _call(two, "rollback", "--reason", "it rained")
    assert _call(two, "list").splitlines()[2].split()[:3] == [f"{NAME}:2", "rolled", "back"]
    for words in (("promote",), ("promote", ":2")):
        with pytest.raises(PromotionError):
            _call(two, *words)
    assert f"promote {NAME}:2" in _call(two, "approve", ":2", "--reason", "approved again")
    assert second in _call(two, "promote", ":2", "--reason", "it was the sensor")
    assert first in _call(two, "rollback", "--reason", "it rained again")
    assert f"{NAME}:2 is archived" in _call(two, "archive", f"{NAME}:2")
    with pytest.raises(PromotionError):
        _call(two, "archive", ":1")
