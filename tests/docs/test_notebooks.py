"""The page on notebooks: its code runs as one notebook, and what it shows is what the store holds."""

import re
import shutil
from pathlib import Path

import nbformat
import yaml
from nbclient import NotebookClient

from gatehouse.kfp.local_run import LocalRun
from gatehouse.store.store import ArtifactStore
from tests.small_example import WINDOW
from tests.source_tree import ROOT


def _notebook(raw: Path) -> nbformat.NotebookNode:
    page = (ROOT / "docs" / "notebooks.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) >= 8
    shown = re.compile(r'window="[^"]*"')
    cells = [nbformat.v4.new_code_cell(shown.sub(f'window="{WINDOW}", source="{raw}"', block)) for block in blocks]
    return nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": {"name": "python3", "display_name": ""}})


def test_the_page_runs_as_a_notebook(
    first: tuple[ArtifactStore, LocalRun], project: Path, raw: Path, tmp_path: Path
) -> None:
    shutil.copytree(project, tmp_path / "flights")
    shutil.copytree(first[0].address, tmp_path / "flights" / ".gatehouse" / "store")
    file = tmp_path / "flights" / "project.yaml"
    file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | {"store": ".gatehouse/store"}))
    notebook = _notebook(raw)
    NotebookClient(notebook, timeout=100, resources={"metadata": {"path": str(tmp_path)}}).execute()
    values = [
        output["data"]
        for cell in notebook.cells
        for output in cell.outputs
        if output["output_type"] == "execute_result"
    ]
    assert len(values) == len(notebook.cells)
    pages = [value.get("text/html", "") for value in values]
    run, models, evaluation = pages[0], pages[2], pages[3]
    assert "approved" in run and "retrieve_training_set" in run
    assert "flight-delays:1" in models and "champion" in models
    assert evaluation.startswith("<iframe sandbox srcdoc=") and "Content-Security-Policy" in evaluation
    scores = [float(text) for text in re.findall(r"\d\.\d+", values[7]["text/plain"])]
    assert len(scores) == 5 and all(0 < score < 1 for score in scores)
    assert "<td>roc_auc</td>" in pages[8] and "configuration" not in pages[8]
    printed = "".join(output["text"] for output in notebook.cells[0].outputs if output["output_type"] == "stream")
    assert printed.count("from memo") > 8 and printed.count("Snapshot the source") == 1
