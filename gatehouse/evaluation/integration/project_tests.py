"""Runs the tests that a project has for its candidates, and tells by name what has not passed."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

from gatehouse.evaluation.integration.child import require_permanent, run
from gatehouse.store.hidden_values import hidden_columns, unless_hidden
from gatehouse.store.store import ArtifactStore

PLUGIN = "gatehouse.evaluation.integration.candidate"
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

    Raises:
        UntriedError: if they take longer, a signal ends them, or the store does not give them the candidate.
    """
    from gatehouse.evaluation.integration import candidate

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
    code, said = run(["-m", "pytest", *options, str(tried)], seconds, folder, kept | given)
    if not told.exists():
        yield f"the tests ended with {code} before all had run: {said}"
        return
    found = json.loads(told.read_text())
    for error in found["errors"]:
        require_permanent(error)
    # Tests of one function are told once where their values are hidden.
    yield from dict.fromkeys(_shown(name, why) for name, why in sorted(found["problems"].items()))
    ran = {name.partition("::")[0] for name in (*found["passed"], *found["problems"])}
    yield from (f"{name}: no test of it ran" for name in files if is_test_file(name) and name not in ran)
    if not found["problems"] and (found["exit"] or not found["passed"]):
        yield f"pytest ended with {found['exit']} after {len(found['passed'])} tests"


def _shown(name: str, why: str) -> str:
    """Which test has not passed, and why; the values of its parameters, and its own words, may quote a golden row."""
    named = name.partition("[")[0] if hidden_columns() else name
    what, _, words = why.partition(": ")
    if what in ("was skipped", "is expected to fail"):
        why = f"{what}: {unless_hidden(words)}"
    elif what != "was deselected":
        why = unless_hidden(why)
    return f"{named or 'collection'}: {why}"


def is_test_file(path: str) -> bool:
    """Whether pytest looks for tests in a file of this path."""
    name = path.rpartition("/")[2]
    return name.endswith(".py") and (name.startswith("test_") or name.endswith("_test.py"))
