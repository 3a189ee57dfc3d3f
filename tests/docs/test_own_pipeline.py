"""The page on one's own pipeline, run as it is written: a script is killed once, goes on, and its model is judged."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gatehouse.registry.ledger import Ledger
from gatehouse.store.store import ArtifactStore
from tests.source_tree import ROOT

PAGE = (ROOT / "docs" / "own-pipeline.md").read_text()
BLOCKS = dict(re.findall(r'```python title="([\w.]+)"\n(.*?)```', PAGE, re.DOTALL))
KILL = """    if epoch == 10 and first == 0 and dist.get_rank() == 1:
        os.kill(os.getpid(), 9)
"""


@pytest.mark.timeout(600)
def test_a_script_is_killed_once_goes_on_and_its_model_becomes_champion(tmp_path: Path) -> None:
    for name, text in BLOCKS.items():
        # Nothing is installed here, and the second process of the script ends in the middle.
        text = re.sub(r"@dsl\.component\(packages_to_install=.*\)", "@dsl.component(install_kfp_package=False)", text)
        text = text.replace("    optimizer.zero_grad()\n", KILL + "    optimizer.zero_grad()\n")
        (tmp_path / name).write_text(text)
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "run.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    assert Ledger(ArtifactStore.open(tmp_path / "store"), "digits").state().champion == 1
    (log,) = (tmp_path / "runs").rglob("launch/log")
    epochs = [int(number) for number in re.findall(r"epoch=(\d+) ", log.read_text())]
    assert epochs == list(range(30)), "after the kill it went on where the checkpoint was"
    assert {path.parent.name for path in (tmp_path / "runs").rglob("report")} >= {"evaluate", "validate"}
