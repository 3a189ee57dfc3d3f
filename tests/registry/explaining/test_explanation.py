"""What a version answers, what is refused because it cannot, and how the lineage is drawn."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gatehouse.cli.models import app
from gatehouse.registry.explaining.answers import IncompleteLineageError, seven_answers
from gatehouse.registry.explaining.explanation import Edge, ExplainRequest, Explanation, Node, explain, graph_of
from gatehouse.registry.explaining.report import explanation_page, lineage_picture
from gatehouse.registry.ledger import Ledger
from gatehouse.store.store import ArtifactStore
from tests.registry.gate import NAME, Gate

QUESTIONS = (
    *("which data", "which code", "which configuration", "which environment and image", "which seeds"),
    *("which parents", "who and why"),
)


@pytest.fixture
def found(gate: Gate) -> Explanation:
    """The explanation of the first champion."""
    gate.run(gate.model(1))
    return explain(ExplainRequest(model=f"{NAME}@champion"), gate.store)


def test_a_version_answers_seven_questions(found: Explanation, gate: Gate) -> None:
    assert tuple(each.question for each in found.answers) == QUESTIONS
    assert not any(each.missing for each in found.answers)
    facts = {each.question: dict(each.facts) for each in found.answers}
    assert facts["which data"]["training-set"] == gate.training_set
    assert facts["which code"]["code"] == "c" * 64
    assert facts["which seeds"] == {"seed": "1"}
    assert facts["which environment and image"]["torch"] == "2.13"
    assert facts["which parents"] == {"training_set": gate.training_set, "split": gate.split}
    assert (facts["who and why"]["by"], facts["who and why"]["why"]) == ("ada", "the seasons changed")
    assert {each.name: each.value for each in found.numbers} == {"roc_auc": 0.73, "log_loss": 0.49}
    assert found.acts[0].what == "registered as version 1"


def test_a_calibrated_model_answers_with_the_training_of_its_weights(gate: Gate) -> None:
    store, trained = gate.store, gate.model(1)
    manifest = store.manifest(trained)
    files: dict[str, Any] = {entry.path: entry for entry in manifest.files} | {"calibration.json": "{}"}
    settings = {**manifest.configuration, "calibration": {"method": "platt"}}
    origin = {**manifest.derived_from, "model": trained}
    model = str(store.publish("models", NAME, files, derived_from=origin, configuration=settings))
    store.append(f"provenance/{model}", {"run": "r", "by": "ada", "code": "d" * 64, "stage": "calibrate"})
    gate.run(model)
    answers = {each.question: dict(each.facts) for each in seven_answers(store, model)}
    assert answers["which configuration"]["calibration.method"] == "platt"
    assert answers["which environment and image"]["torch"] == "2.13" and answers["which seeds"] == {"seed": "1"}


def _without(store: ArtifactStore, prefix: str, *names: str) -> None:
    """Take facts out of the first record under a prefix."""
    path = store.objects.local_path(next(store.objects.list(prefix)))
    body = json.loads(path.read_text())
    path.unlink()
    store.record(str(path.relative_to(store.address)), {name: each for name, each in body.items() if name not in names})


@pytest.mark.parametrize(
    ("prefix", "names", "question"),
    [
        ("provenance", ("code",), "which code"),
        ("provenance", ("by",), "who and why"),
        ("provenance", ("run", "why"), "who and why"),
        ("measurements", ("environment",), "which environment"),
        ("measurements", ("stage",), "which environment"),
    ],
)
def test_a_model_that_cannot_answer_is_not_registered(
    gate: Gate, prefix: str, names: tuple[str, ...], question: str
) -> None:
    model = gate.model(1)
    _without(gate.store, f"{prefix}/{model}", *names)
    with pytest.raises(IncompleteLineageError, match=rf"{model} cannot be registered[\s\S]*{question}.*: .*none"):
        gate.run(model)
    assert Ledger(gate.store, NAME).records() == []


@pytest.mark.parametrize("question", ["which data", "which seeds", "which parents", "which configuration"])
def test_a_model_of_nothing_has_no_answer(store: ArtifactStore, question: str) -> None:
    model = store.publish("models", NAME, {"model.json": "{}"})
    assert {each.question: each for each in seven_answers(store, str(model))}[question].missing


def test_the_lineage_leads_down_to_the_rows_of_the_sources(gate: Gate) -> None:
    table = gate.store.publish("datasets", "shops", {"a.csv": "a"}, rows=1234)
    snapshot = gate.store.publish("snapshots", "raw", {"t.json": "{}"}, derived_from={"shops": table})
    nodes, edges = graph_of(gate.store, str(snapshot))
    assert {(each.identity, each.rows, each.level) for each in nodes} == {
        (str(table), 1234, 0),
        (str(snapshot), None, 1),
    }
    assert [(each.before, each.after, each.role) for each in edges] == [(str(table), str(snapshot), "shops")]
    picture = lineage_picture(nodes, edges, "<b>", alone=True)
    assert "1,234 rows" in picture and "&lt;b&gt;" in picture and picture.count('rx="6"') == 2


@pytest.mark.parametrize("sources", [1, 4, 9])
def test_the_picture_of_a_long_lineage_fits_the_column_of_a_page(sources: int) -> None:
    levels = [0] * sources + [*range(1, 9)]
    nodes = [Node(identity=f"steps/s{at}/sha256-{at:064x}", rows=10, level=level) for at, level in enumerate(levels)]
    edges = [Edge(before=nodes[at].identity, after=nodes[-1].identity, role="a") for at in range(len(nodes) - 1)]
    picture = lineage_picture(nodes, edges, "a")
    width, height = (int(re.findall(rf'^<svg[^>]* {side}="(\d+)"', picture)[0]) for side in ("width", "height"))
    boxes = {(int(x), int(y)) for x, y in re.findall(r'<rect [^>]*x="(\d+)" y="(\d+)"', picture)}
    assert width <= 912 and len(boxes) == len(nodes)
    assert all(x + 212 <= width and y + 46 <= height for x, y in boxes)


def test_the_page_escapes_what_people_wrote(gate: Gate) -> None:
    gate.run(gate.model(1))
    gate.approve(1, reason="<script>alert(1)</script>")
    page = explanation_page(explain(ExplainRequest(model=f"{NAME}:1"), gate.store))
    assert "&lt;script&gt;alert(1)" in page and "<script>alert" not in page
    assert all(question.capitalize() in page for question in QUESTIONS)


def test_the_command_prints_the_answers_and_writes_page_and_picture(gate: Gate, tmp_path: Path) -> None:
    gate.run(gate.model(1))
    words = ["explain", "@champion", "--html", f"{tmp_path}/a.html", "--svg", f"{tmp_path}/a.svg"]
    result = CliRunner().invoke(app, [*words, "--store", gate.store.address])
    assert result.exit_code == 0, result.output
    assert all(question in result.output for question in QUESTIONS) and gate.training_set in result.output
    text = (tmp_path / "a.svg").read_text()
    assert text.startswith("<svg") and "training-sets" in text
    assert "<!doctype html>" in (tmp_path / "a.html").read_text()


def test_the_page_lies_in_the_cache_of_the_user_where_nobody_says_where(
    gate: Gate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GATEHOUSE_CACHE", str(tmp_path / "cache"))
    gate.run(gate.model(1))
    result = CliRunner().invoke(app, ["explain", "@champion", "--store", gate.store.address])
    (page,) = (tmp_path / "cache").rglob("*.html")
    assert f"page: {page}" in result.output.replace("\n", "")
