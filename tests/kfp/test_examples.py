"""The example of every component that stands alone, run by KFP's local runner as it is written."""

import re
import runpy
from pathlib import Path

import pytest
from kfp import local

from tests.source_tree import ROOT

ELSEWHERE = {"deploy", "promote", "score"}
"""Examples that need a champion, which `tests.docs.test_own_pipeline` has, or a cluster."""
EXAMPLES = {path.parent.name: path for path in (ROOT / "components").glob("*/example.py")}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", sorted(EXAMPLES.keys() - ELSEWHERE))
def test_an_example_runs(name: str, tmp_path: Path) -> None:
    text = re.sub(r"packages_to_install=\[.*?\]", "install_kfp_package=False", EXAMPLES[name].read_text())
    (tmp_path / "example.py").write_text(text)  # Nothing is installed here.
    example = runpy.run_path(str(tmp_path / "example.py"))["example"]
    local.init(local.SubprocessRunner(use_venv=False), pipeline_root=str(tmp_path / "runs"))
    inputs = example.pipeline_spec.root.input_definitions.parameters
    example(**({"store": str(tmp_path / "store")} if "store" in inputs else {}))
