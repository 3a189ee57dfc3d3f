"""The verbs of `gatehouse models`."""

import re

import pytest
from typer.testing import CliRunner

from gatehouse.cli.models import app
from gatehouse.cli.output import find
from gatehouse.errors import ConfigurationError
from gatehouse.registry.approval import ApprovalError, now
from gatehouse.registry.ledger import Ledger
from gatehouse.registry.promotion import PromotionError
from gatehouse.store.eraser import erase, plan_erasure
from gatehouse.store.records import whoami
from gatehouse.store.reference import Reference
from tests.registry.gate import MANUAL, NAME, Gate


def _call(gate: Gate, *words: str) -> str:
    result = CliRunner().invoke(app, [*words, "--store", gate.store.address])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return str(result.output)


def _short(reference: str) -> str:
    return Reference.parse(reference).short


def test_list_names_versions_aliases_and_references(gate: Gate) -> None:
    first, second = gate.model(1), gate.model(2)
    gate.run(first)
    gate.run(second, policy=MANUAL)
    text = _call(gate, "list")
    lines = text.splitlines()
    assert lines[1].split()[:2] == [f"{NAME}:1", "champion"] and first.startswith(lines[1].split()[-1])
    assert lines[2].split()[:2] == [f"{NAME}:2", "staging"] and second.startswith(lines[2].split()[-1])
    assert "roc_auc 0." in lines[1] and re.search(r" 20\d\d-\d\d-\d\d \d\d:\d\d ", lines[1])
    assert "champion: in production" in text and "staging: passed the gate; a person promotes it" in text
    assert "archived" not in text


def test_a_model_of_which_no_candidate_passed_is_told(gate: Gate) -> None:
    gate.run(gate.model(1), good=False)
    told = _call(gate, "list")
    assert "has no registered models" in told
    assert re.search(rf"{NAME} has no version: of 1 candidate the gate let none pass, the last one on 20\d\d-", told)
    for text in (f"{NAME}:1", f"{NAME}@champion"):
        with pytest.raises(
            ConfigurationError, match=f"it has no version yet, .*`gatehouse models show {NAME}` says why"
        ):
            find(gate.store, text)


def test_list_says_which_versions_were_erased(gate: Gate) -> None:
    model = gate.model(1)
    gate.run(model)
    erase(gate.store, plan_erasure(gate.store, Reference.parse(model), only=True), "request 17")
    text = _call(gate, "list")
    assert text.splitlines()[1].split()[1:3] == ["champion,", "erased"]
    assert "erased: its files were removed for good" in text


def test_a_version_is_named_in_one_way(gate: Gate) -> None:
    first, second = gate.model(1), gate.model(2)
    gate.run(first)
    gate.run(second, policy=MANUAL)
    for text, model in ((f"{NAME}:1", first), (f"{NAME}@champion", first), (":2", second), ("@staging", second)):
        assert str(find(gate.store, text)) == model
        assert model in _call(gate, "show", text)
    for text, told in (
        (f"{NAME}:3", f"has no version 3: expected {NAME}:1 to {NAME}:2"),
        (f"{NAME}@canary", f"{NAME}@canary: no version is canary now; expected {NAME}@champion"),
        (f"{NAME}@boss", "boss is no alias now"),
        (f"{NAME}@champio", f"expected {NAME}@champion or {NAME}@staging"),
        ("nobody:1", "found 'nobody'"),
    ):
        with pytest.raises(ConfigurationError, match=told):
            find(gate.store, text)


def test_a_word_on_the_champion_says_that_it_stays(gate: Gate) -> None:
    gate.run(gate.model(1))
    told = _call(gate, "reject", ":1", "--reason", "it\nlies")
    assert f"It is the champion, until `gatehouse models rollback {NAME}:1`" in told
    assert "It is the champion already" in _call(gate, "approve", ":1", "--reason", "it does not")
    assert "it lies" in _call(gate, "show")
    with pytest.raises(ConfigurationError, match=f"{NAME} alone names no version: expected {NAME}:1 to {NAME}:1"):
        _call(gate, "explain", NAME)


def test_a_champion_is_not_promoted_again(gate: Gate) -> None:
    gate.run(gate.model(1))
    assert f"{NAME}:1 is champion already; nothing was changed" in _call(gate, "promote", "@champion")


def test_an_exemption_is_shown_wherever_the_verdict_is(gate: Gate) -> None:
    model, until = gate.model(1), str(now().date())
    gate.run(model, good=False)
    words = ("--rule", "bar roc_auc", "--until", until, "--reason", "a pilot")
    told = f"exempted from bar roc_auc until {until} by {whoami()}: a pilot"
    assert told in _call(gate, "exempt", _short(model), *words)
    assert gate.run(model, good=False).warnings == (told,)
    for verb in (("show",), ("show", ":1"), ("explain", ":1")):
        assert told in _call(gate, *verb), verb
    with pytest.raises(ConfigurationError, match="found 'tomorrow'"):
        _call(gate, "exempt", ":1", "--rule", "bar roc_auc", "--until", "tomorrow")


def test_show_tells_the_ledger_with_reasons(gate: Gate) -> None:
    gate.run(gate.model(1))
    gate.run(gate.model(2), good=False)
    text = _call(gate, "show")
    assert "registered as version 1" in text and "version 1 is champion" in text
    assert "refused models/delays/" in text and "bar roc_auc: expected at least 0.7, found 0.6. Look for" in text
    assert Ledger(gate.store, NAME).state().verdicts[-1][1].reasons == (
        "bar roc_auc: expected at least 0.7, found 0.6",
    )


def test_show_of_a_version_gives_its_lineage_and_how_often_its_test_set_was_used(gate: Gate) -> None:
    gate.run(gate.model(2), good=False)
    gate.run(gate.model(1))
    text = _call(gate, "show", f"{NAME}:1")
    assert "judged 1 other candidates before" in text
    assert gate.training_set in text and "snapshots/raw/sha256-" in text


def test_promote_rollback_and_archive(gate: Gate) -> None:
    first, second = gate.model(1), gate.model(2)
    gate.run(first)
    gate.run(second, policy=MANUAL)
    with pytest.raises(ApprovalError, match="found none"):
        _call(gate, "promote")
    told = _call(gate, "approve", "--reason", "approved on Monday")
    assert f"{NAME}:2 is approved by " in told and f"promote {NAME}:2, or the promotion pipeline\n" in told
    assert f"{NAME}:2 is promoted to canary; the champion is {_short(first)}" in _call(
        gate, "promote", "--to", "canary"
    )
    assert f"the champion is {_short(second)}" in _call(gate, "promote")
    assert _call(gate, "list").splitlines()[1].split()[:2] == [f"{NAME}:1", "replaced"]
    assert f"the champion is {_short(first)}" in _call(gate, "rollback", "--reason", "it rained")
    assert _call(gate, "list").splitlines()[2].split()[:3] == [f"{NAME}:2", "rolled", "back"]
    for words in (("promote",), ("promote", ":2")):
        with pytest.raises(PromotionError, match=r"no version in staging|rolled back"):
            _call(gate, *words)
    told = _call(gate, "approve", ":2", "--reason", "approved again")
    assert f'promote {NAME}:2 --reason "…", or the promotion pipeline with a reason, as it was rolled back' in told
    assert f"the champion is {_short(second)}" in _call(gate, "promote", ":2", "--reason", "it was the sensor")
    assert f"the champion is {_short(first)}" in _call(gate, "rollback", "--reason", "it rained again")
    assert f"{NAME}:2 is archived" in _call(gate, "archive", f"{NAME}:2")
    with pytest.raises(PromotionError):
        _call(gate, "archive", ":1")


def test_an_unknown_model_is_named_with_those_that_exist(gate: Gate) -> None:
    gate.run(gate.model(1))
    with pytest.raises(ConfigurationError, match=f"{NAME}.*'nobody'"):
        _call(gate, "show", "nobody")
