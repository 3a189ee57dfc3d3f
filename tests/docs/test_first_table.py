"""The tutorial: every line of it is run as it stands, and prints what it says."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.source_tree import ROOT

pytestmark = pytest.mark.timeout(900)
_BLOCK = re.compile(r"```(bash|text)\n(.*?)```", re.DOTALL)


def _in_one_line(text: str) -> str:
    return " ".join(text.split())


def test_every_line_runs_and_prints_what_the_page_says(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "first-table.md").read_text(encoding="utf-8")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    folder, output, blocks = tmp_path, "", _BLOCK.findall(page)
    assert [kind for kind, _ in blocks].count("bash") >= 6
    for kind, text in blocks:
        if kind == "bash":
            ended = subprocess.run(
                ["bash", "-ec", f"{text}\npwd > {tmp_path}/folder"],
                cwd=folder,
                env=os.environ | {"PATH": path},
                capture_output=True,
                text=True,
                stdin=subprocess.DEVNULL,
                check=False,
            )
            output = ended.stdout + ended.stderr
            assert ended.returncode == 0, output
            folder = Path((tmp_path / "folder").read_text().strip())
        else:
            missing = [line for line in text.splitlines() if _in_one_line(line) not in _in_one_line(output)]
            assert not missing, output
