"""The plugin that makes an unexplained skip a failure."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.source_tree import ROOT

# The session that runs these tests may have a list of its own.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
ENVIRONMENT["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"

SKIPPED = """
import pytest

def test_passes():
    pass

def test_without_browser():
    pytest.skip("chromium is not installed (looked in /usr/bin)")
"""


def _session(folder: Path, test: str, allowed: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_sample.py").write_text(test)
    (folder / "allowed.txt").write_text(allowed)
    options = ["-p", "tests.allowed_skips", "--allowed-skips", str(folder / "allowed.txt"), "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", "-c", "/dev/null", "--rootdir", str(folder), *options, str(folder)]
    return subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, check=False)


def test_a_skip_fails_the_session_and_is_named(tmp_path: Path) -> None:
    ended = _session(tmp_path, SKIPPED, "# none\n")
    assert ended.returncode == pytest.ExitCode.TESTS_FAILED
    assert "test_without_browser: chromium is not installed (looked in /usr/bin)" in ended.stdout
    assert "1 passed, 1 skipped" in ended.stdout.splitlines()[-1]


def test_a_skip_for_an_allowed_reason_passes(tmp_path: Path) -> None:
    ended = _session(tmp_path, SKIPPED, "# browsers\nchromium is not installed .*\n")
    assert ended.returncode == 0, ended.stdout
