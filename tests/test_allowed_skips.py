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
AT_COLLECTION = "import pytest\npytest.importorskip('no_such_module', reason='no_such_module is absent')\n"


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


def test_an_allowed_reason_is_matched_whole(tmp_path: Path) -> None:
    assert _session(tmp_path, SKIPPED, "chromium\n").returncode == pytest.ExitCode.TESTS_FAILED


def test_a_module_that_is_skipped_at_collection_counts(tmp_path: Path) -> None:
    ended = _session(tmp_path, AT_COLLECTION, "")
    assert ended.returncode == pytest.ExitCode.TESTS_FAILED
    assert "no_such_module is absent" in ended.stdout


def test_without_a_list_nothing_changes(tmp_path: Path) -> None:
    (tmp_path / "test_sample.py").write_text(SKIPPED)
    command = [sys.executable, "-m", "pytest", "-c", "/dev/null", "-p", "tests.allowed_skips", str(tmp_path)]
    ended = subprocess.run(
        [*command, "-p", "no:cacheprovider"], cwd=ROOT, env=ENVIRONMENT, capture_output=True, check=False
    )
    assert ended.returncode == 0
