"""The model card: a head that the hub reads, and sections of what is known."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from gatehouse.cli.models import app
from gatehouse.registry.explaining.card import model_card
from gatehouse.registry.explaining.explanation import ExplainRequest, Explanation, explain
from gatehouse.store.canonical import canonical_json
from tests.registry.gate import NAME, Gate


@pytest.fixture
def found(gate: Gate) -> Explanation:
    """The explanation of the first champion."""
    gate.run(gate.model(1))
    return explain(ExplainRequest(model=f"{NAME}@champion"), gate.store)


def test_the_head_is_what_the_hub_reads(found: Explanation, gate: Gate) -> None:
    _, head, body = model_card(found, gate.store).split("---\n", 2)
    told = yaml.safe_load(head)
    (result,) = told["model-index"][0]["results"]
    assert told["model-index"][0]["name"] == NAME
    assert {each["type"]: each["value"] for each in result["metrics"]} == {"roc_auc": 0.73, "log_loss": 0.49}
    assert gate.training_set.endswith(result["dataset"]["revision"]) and result["dataset"]["name"] == "delay"
    assert body.strip().startswith(f"# {NAME}, version 1")


def test_the_sections_say_what_is_known_and_nothing_else(found: Explanation, gate: Gate) -> None:
    text = model_card(found, gate.store)
    titles = [line.removeprefix("## ") for line in text.splitlines() if line.startswith("## ")]
    expected = [
        "Model details",
        "Uses",
        "Training",
        "Evaluation",
        "Bias, risks and limitations",
        "Environment",
        "History",
    ]
    assert titles == expected
    assert "| roc\\_auc | 0.7300 |" in text and "- **Verdict of the gate:** pass" in text
    assert found.model in text and "ada" in text and "the seasons changed" in text


def test_what_was_measured_and_probed_is_shown_and_names_are_no_markup(found: Explanation, gate: Gate) -> None:
    store = gate.store
    latency: dict[str, Any] = {"hardware": "Chip <b>, 2 cores", "single_row_ms": {"p50": 0.5, "p95": 0.75}}
    latency |= {"batch": {"rows": 1024}, "rows_per_second": 51234}
    store.append(f"measurements/{found.model}", {"stage": "evaluate", "latency": latency, "size_bytes": 2_340_000})
    features = [{"name": "a|b_c", "importance": {"mean": 0.125, "spread": 0.01}}]
    told = canonical_json({"metric": "log_loss", "rows": 500, "features": features})
    store.publish("robustness", NAME, {"robustness.json": told}, derived_from={"model": found.model})
    text = model_card(found, store)
    assert "- **Measured on:** Chip \\<b\\>, 2 cores" in text and "p50 0.5 ms, p95 0.75 ms" in text
    assert "51,234 rows a second in batches of 1,024" in text and "**Size:** 2.34 MB" in text
    assert "| a\\|b\\_c | 0.1250 | 0.0100 |" in text


def test_the_command_writes_it_to_terminal_or_file(found: Explanation, gate: Gate, tmp_path: Path) -> None:
    run = CliRunner()
    shown = run.invoke(app, ["card", f"{NAME}:1", "--store", gate.store.address])
    assert shown.exit_code == 0 and shown.output.startswith("---\n")
    path = tmp_path / "cards" / "README.md"
    assert (
        run.invoke(app, ["card", f"{NAME}@champion", "--out", str(path), "--store", gate.store.address]).exit_code == 0
    )
    assert path.read_text() == model_card(found, gate.store)
