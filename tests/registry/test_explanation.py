"""The seven answers of a version, the refusal of a model without them, its lineage as a picture, and its card."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from gatehouse.cli.models import app
from gatehouse.registry.card import explanation_page, lineage_picture, model_card
from gatehouse.registry.explanation import (
    Edge,
    Explanation,
    IncompleteLineageError,
    Node,
    explain,
    graph_of,
    seven_answers,
)
from gatehouse.store.canonical import canonical_json
from gatehouse.store.store import ArtifactStore
from tests.registry.gate import NAME, Gate

QUESTIONS = (
    *("which data", "which code", "which configuration", "which environment and image", "which seeds"),
    *("which parents", "who and why"),
)


@pytest.fixture
def version(gate: Gate) -> Explanation:
    """The explanation of the first champion, with an approval whose reason is markup."""
    gate.run(gate.model(1))
    gate.approve(1, reason="<script>alert(1)</script>")
    return explain(gate.store, f"{NAME}@champion")


def test_a_version_answers_seven_questions(version: Explanation, gate: Gate) -> None:
    assert tuple(answer.question for answer in version.answers) == QUESTIONS
    assert not any(answer.missing for answer in version.answers)
    facts = {answer.question: dict(answer.facts) for answer in version.answers}
    assert facts["which data"]["training-set"] == gate.training_set
    assert facts["which code"]["code"] == "c" * 64
    assert facts["which seeds"] == {"seed": "1"}
    assert facts["which environment and image"]["torch"] == "2.13"
    assert facts["which parents"] == {"training_set": gate.training_set, "split": gate.split}
    assert (facts["who and why"]["by"], facts["who and why"]["why"]) == ("ada", "the seasons changed")
    assert {number.name: number.value for number in version.numbers} == {"roc_auc": 0.73, "log_loss": 0.49}
    assert version.acts[0].what == "registered as version 1"
    page = explanation_page(version)
    assert "&lt;script&gt;alert(1)" in page and "<script>alert" not in page
    assert all(question.capitalize() in page for question in QUESTIONS)


def test_the_environment_has_every_distribution_that_the_code_imports(gate: Gate) -> None:
    gate.run(gate.model(1))
    used = {f"package-{number}": "1" for number in range(20)} | {"xgboost": "3.0", "torch": "2.13"}
    gate.store.record(f"code/{'c' * 64}.json", {"modules": {}, "distributions": used})
    answers = {answer.question: dict(answer.facts) for answer in explain(gate.store, f"{NAME}:1").answers}
    assert answers["which environment and image"].items() >= used.items()


def test_a_calibrated_model_answers_with_the_training_of_its_weights(gate: Gate) -> None:
    store, trained = gate.store, gate.model(1)
    manifest = store.manifest(trained)
    files: dict[str, Any] = {entry.path: entry for entry in manifest.files} | {"calibration.json": "{}"}
    settings = {**manifest.configuration, "calibration": {"method": "platt"}}
    origin = {**manifest.derived_from, "model": trained}
    model = str(store.publish("models", NAME, files, derived_from=origin, configuration=settings))
    store.append(f"provenance/{model}", {"run": "r", "by": "ada", "code": "d" * 64, "stage": "calibrate"})
    gate.run(model)
    answers = {answer.question: dict(answer.facts) for answer in seven_answers(store, model)}
    assert answers["which configuration"]["calibration.method"] == "platt"
    assert answers["which environment and image"]["torch"] == "2.13" and answers["which seeds"] == {"seed": "1"}


@pytest.mark.parametrize(
    ("prefix", "names", "question"),
    [
        ("provenance", ("code",), "which code"),
        ("provenance", ("by",), "who and why"),
        ("measurements", ("environment",), "which environment"),
        ("measurements", ("stage",), "which environment"),
    ],
)
def test_a_model_that_cannot_answer_is_not_registered(
    gate: Gate, prefix: str, names: tuple[str, ...], question: str
) -> None:
    model = gate.model(1)
    key = next(gate.store.objects.list(f"{prefix}/{model}"))
    body = json.loads(gate.store.objects.get_bytes(key))
    gate.store.objects.local_path(key).unlink()
    gate.store.record(key, {name: value for name, value in body.items() if name not in names})
    with pytest.raises(IncompleteLineageError, match=rf"{model}[\s\S]*{question}"):
        gate.run(model)
    assert gate.kinds == []


def test_a_model_that_was_made_outside_of_a_run_is_registered(gate: Gate) -> None:
    model = gate.model(1)
    key = next(gate.store.objects.list(f"provenance/{model}"))
    body = json.loads(gate.store.objects.get_bytes(key)) | {"run": "", "why": ""}
    gate.store.objects.local_path(key).unlink()
    gate.store.record(key, body)
    assert gate.run(model).decision == "approved"
    assert dict(seven_answers(gate.store, model)[-1].facts) == {"by": "ada", "stage": "train", "why": "not stated"}


@pytest.mark.parametrize("question", ["which data", "which seeds", "which parents", "which configuration"])
def test_a_model_of_nothing_has_no_answer(store: ArtifactStore, question: str) -> None:
    model = store.publish("models", NAME, {"model.json": "{}"})
    assert {answer.question: answer.missing for answer in seven_answers(store, str(model))}[question]


def test_the_lineage_leads_down_to_the_rows_of_the_sources(gate: Gate) -> None:
    table = gate.store.publish("datasets", "shops", {"a.csv": "a"}, rows=1234)
    snapshot = gate.store.publish("snapshots", "raw", {"t.json": "{}"}, derived_from={"shops": table})
    nodes, edges = graph_of(gate.store, str(snapshot))
    assert {(node.identity, node.rows, node.level) for node in nodes} == {
        (str(table), 1234, 0),
        (str(snapshot), None, 1),
    }
    assert [(edge.before, edge.after, edge.role) for edge in edges] == [(str(table), str(snapshot), "shops")]
    picture = lineage_picture(nodes, edges, "<b>")
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


def test_a_card_has_the_head_that_the_hub_reads_and_only_the_sections_that_are_known(
    version: Explanation, gate: Gate
) -> None:
    _, head, body = model_card(version, gate.store).split("---\n", 2)
    (model,) = yaml.safe_load(head)["model-index"]
    (result,) = model["results"]
    assert model["name"] == NAME
    assert {metric["type"]: metric["value"] for metric in result["metrics"]} == {"roc_auc": 0.73, "log_loss": 0.49}
    assert gate.training_set.endswith(result["dataset"]["revision"]) and result["dataset"]["name"] == "delay"
    assert body.strip().startswith(f"# {NAME}, version 1")
    assert re.findall(r"^## (.*)$", body, re.MULTILINE) == [
        *("Model details", "Uses", "Training", "Evaluation", "Bias, risks and limitations", "Environment", "History"),
    ]
    assert "| roc\\_auc | 0.7300 |" in body and "- **Verdict of the gate:** pass\n" in body
    assert version.model in body and "the seasons changed" in body and "\\<script\\>" in body
    assert "\n\n\n" not in body


def test_a_card_shows_measurements_and_calibration_and_escapes_names(version: Explanation, gate: Gate) -> None:
    store = gate.store
    latency: dict[str, Any] = {"hardware": "Chip <b>, 2 cores", "single_row_ms": {"p50": 0.5, "p95": 0.75}}
    latency |= {"batch": {"rows": 1024}, "rows_per_second": 51234}
    store.append(f"measurements/{version.model}", {"stage": "evaluate", "latency": latency, "size_bytes": 2_340_000})
    fitted = {"method": "platt", "threshold": 0.31234, "rule": {"max": "f1"}}
    files = {"calibration.json": canonical_json(fitted), "model.json": canonical_json({"inputs": {"dist": "number"}})}
    calibrated = str(store.publish("models", NAME, files, derived_from=store.manifest(version.model).derived_from))
    text = model_card(version, store)
    assert "- **Measured on:** Chip \\<b\\>, 2 cores\n- **One row:** p50 0.5 ms, p95 0.75 ms\n" in text
    assert "51,234 rows a second in batches of 1,024" in text and "**Size:** 2.34 MB" in text
    assert "\n\n\n" not in text
    text = model_card(version.model_copy(update={"model": calibrated}), store)
    assert "It reads 1 features: `dist` (number)." in text and "calibrated (platt); positive from 0.3123" in text


def test_the_commands_print_the_answers_and_write_page_and_card(
    version: Explanation, gate: Gate, tmp_path: Path
) -> None:
    def call(*words: str) -> str:
        result = CliRunner().invoke(app, [*words, "--store", gate.store.address])
        assert result.exit_code == 0, result.output
        return str(result.output)

    output = call("explain", "@champion", "--html", f"{tmp_path}/a.html")
    assert all(question in output for question in QUESTIONS) and gate.training_set in output
    assert "<!doctype html>" in (tmp_path / "a.html").read_text()
    call("card", f"{NAME}@champion", "--out", f"{tmp_path}/cards/README.md")
    assert (tmp_path / "cards" / "README.md").read_text() == model_card(version, gate.store)
