"""Runs the tests that a project has for its candidates, and tells by name what has not passed."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from gatehouse.components.artifacts.store import ArtifactStore

PLUGIN = "gatehouse.components.integration.candidate"
_SETTINGS = "[pytest]\naddopts =\n"


def failures(store: ArtifactStore, model: str, tests: str, rows: Path, folder: Path, seconds: float) -> Iterator[str]:
    """What has not passed, by the name of the test; nothing where every test of every file passed.

    Settings of the environment and of the project's own `pytest.ini` do not count: nothing may leave tests out.

    Args:
        store: Holds model and tests.
        model: Reference of the candidate.
        tests: Reference of the project's test files.
        rows: Parquet file of the golden rows.
        folder: Empty, for this call alone.
        seconds: After which the tests are ended.
    """
    from gatehouse.components.integration import candidate

    tried, told = folder / "integration", folder / "told.json"
    files = [entry.path for entry in store.manifest(tests).files]
    for name in files:
        store.copy(tests, name, tried / name)
    settings = folder / "settings.ini"
    settings.write_text(_SETTINGS)
    given = {
        candidate.STORE: store.address,
        candidate.MODEL: model,
        candidate.ROWS: str(rows),
        candidate.TOLD: str(told),
    }
    given |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV_"))}
    options = ["-p", PLUGIN, "-p", "no:cacheprovider", "-c", str(settings), "--rootdir", str(tried)]
    options += ["--continue-on-collection-errors", "-q"]
    command = [sys.executable, "-m", "pytest", *options, str(tried)]
    try:
        ended = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=seconds, cwd=folder, env=kept | given
        )
    except subprocess.TimeoutExpired:
        yield f"the tests took longer than {seconds:g} s"
        return
    if not told.exists():
        said = (ended.stderr or ended.stdout).strip().splitlines()
        yield f"the tests ended with {ended.returncode} before all had run: {said[-1] if said else 'nothing was said'}"
        return
    found = json.loads(told.read_text())
    yield from (f"{name or 'collection'}: {why}" for name, why in sorted(found["problems"].items()))
    ran = {name.partition("::")[0] for name in (*found["passed"], *found["problems"])}
    yield from (f"{name}: no test of it ran" for name in files if is_test_file(name) and name not in ran)
    if not found["problems"] and (found["exit"] or not found["passed"]):
        yield f"pytest ended with {found['exit']} after {len(found['passed'])} tests"


def is_test_file(path: str) -> bool:
    """Whether pytest looks for tests in a file of this path."""
    name = path.rpartition("/")[2]
    return name.endswith(".py") and (name.startswith("test_") or name.endswith("_test.py"))
