"""The verbs of `gatehouse models`."""

import json
from pathlib import Path
from typing import Any

import pytest
import requests
from typer.testing import CliRunner

from gatehouse.cli.models import app
from gatehouse.errors import ConfigurationError, DeclarationError, GatehouseError
from gatehouse.notebook.store import Store
from gatehouse.project.place import find
from gatehouse.registry.approval import ApprovalError, now
from gatehouse.registry.promotion import PromotionError
from gatehouse.server.app import create_app
from gatehouse.store.eraser import erase, plan_erasure
from gatehouse.store.records import whoami
from gatehouse.store.reference import Reference
from tests.registry.gate import MANUAL, NAME, Gate
from tests.server.serving import client, serving


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


def _listed(gate: Gate, *words: str) -> list[dict[str, Any]]:
    versions: list[dict[str, Any]] = json.loads(_call(gate, "list", *words, "--json"))
    return versions


def test_versions_are_listed_and_searched_by_metrics_settings_and_tags_at_all_three_doors(two: Gate) -> None:
    first, second = _listed(two)
    assert (first["version"], first["status"], first["model"]) == (f"{NAME}:1", "champion", two.model(1))
    assert (second["version"], second["status"], second["by"]) == (f"{NAME}:2", "staging", "ada")
    assert first["metrics"] == {"roc_auc": 0.73, "log_loss": 0.49} and first["registered"].startswith("20")
    assert f"{NAME}:1  champion" in _call(two, "list")
    assert _listed(two, NAME) == [first, second]
    with pytest.raises(ConfigurationError, match=f"{NAME}.*'churn'"):
        _listed(two, "churn")
    _call(two, "tag", ":2", "season=winter")
    for where, expected in (
        (["seed=1..1.5"], [f"{NAME}:1"]),
        (["roc_auc>0.7", "season=winter"], [f"{NAME}:2"]),
        (["depth=2", "status!=champion"], [f"{NAME}:2"]),
        (["log_loss<0.4"], []),
    ):
        words = [word for condition in where for word in ("--where", condition)]
        assert [version["version"] for version in _listed(two, *words)] == expected
        listed = Store(two.store).models("", *where).to_pandas()
        assert listed.to_dict("list").get("model", []) == expected
    assert [version["number"] for version in _listed(two, "--sort", "-seed")] == [2, 1]
    reader = client(two.store, "", "ros", "read")
    with serving(create_app(two.store)) as address:
        reader.address = address
        answer = reader.get("/v1/versions", where="seed=1..1.5", sort="-seed").json()
        assert [version["version"] for version in answer] == [f"{NAME}:1"]
        query, cookies = {"kind": "versions", "where": "seed>1 and roc_auc>0.7"}, {"gatehouse": reader.secret}
        assert f"/models/{NAME}/2" in requests.get(f"{address}/search", params=query, cookies=cookies, timeout=60).text
    erase(two.store, plan_erasure(two.store, Reference.parse(two.model(1)), only=True), "request 17")
    assert _listed(two)[0]["status"] == "champion, erased"


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
    for given in ((), ("--verdict", "sha256-" + "0" * 12)):
        with pytest.raises(ApprovalError, match="digest of its last verdict"):
            _call(two, "approve", "--reason", "approved on Monday", *given)
    read = two.verdict_digest()
    assert f"digest of the verdict {read}" in " ".join(_call(two, "show", f"{NAME}:2").split())
    text = _call(two, "approve", "--verdict", read, "--reason", "approved on Monday")
    assert f"{NAME}:2 is approved by " in text and f"promote {NAME}:2, or the promotion pipeline\n" in text
    assert f"{NAME}:2 is promoted to canary; {first}" in _call(two, "promote", "--to", "canary")
    assert "staging, canary" in _call(two, "show", f"{NAME}:2") and "staging, canary" in _call(two, "list")
    assert second in _call(two, "promote")
    assert _listed(two)[0]["status"] == "replaced"
    assert first in _call(two, "rollback", "--reason", "it rained")
    assert _listed(two)[1]["status"] == "rolled back"
    for words in (("promote",), ("promote", ":2")):
        with pytest.raises(PromotionError):
            _call(two, *words)
    assert f"promote {NAME}:2" in _call(two, "approve", ":2", "--verdict", read, "--reason", "approved again")
    assert second in _call(two, "promote", ":2", "--reason", "it was the sensor")
    assert first in _call(two, "rollback", "--reason", "it rained again")
    assert f"{NAME}:2 is archived" in _call(two, "archive", f"{NAME}:2")
    with pytest.raises(PromotionError):
        _call(two, "archive", ":1")


def test_a_rollout_begins_and_a_version_is_copied_to_another_store(two: Gate, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("live: {metrics: {brier: 0.02}}\nrollout: {shares: [0.1]}\n")
    rollout = ("rollout", NAME, "--policy", str(policy))
    with pytest.raises(DeclarationError, match=r"none\.parquet"):
        _call(two, *rollout, "--outcomes", "none.parquet")
    assert "models approve" in _call(two, *rollout)
    two.approve(2)
    assert "began" in (shown := _call(two, *rollout)) and f"{NAME}:2" in shown and "0.1" in shown
    assert json.loads(_call(two, *rollout, "--json"))["decision"] == "waits"
    policy.write_text("approval: manual\n")
    with pytest.raises(ConfigurationError, match="section `live`"):
        _call(two, *rollout)
    copied = json.loads(_call(two, "copy", f"{NAME}:1", "--to", str(tmp_path / "prod"), "--json"))
    assert (copied["decision"], copied["version"]) == ("approved", 1)
    assert "was copied to version 1" in _call(two, "show", NAME)
    (tmp_path / "project.yaml").write_text(f"store: {tmp_path}/prod\n")  # A project stands for its store.
    assert json.loads(_call(two, "copy", f"{NAME}:1", "--to", str(tmp_path), "--json"))["version"] == 1
    assert not (tmp_path / "blobs").exists()
    of_project = CliRunner().invoke(app, ["rollout", NAME, "--project", str(tmp_path)])
    assert "section `live`" in str(of_project.exception), "the policy of the project, and not of this folder"
    with pytest.raises(ConfigurationError, match="elsewhere"):  # The target's project, and no second name of the store.
        _call(two, "copy", f"{NAME}:1", "--to", str(tmp_path / "more"), "--project", str(tmp_path / "elsewhere"))
