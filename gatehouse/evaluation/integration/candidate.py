"""The pytest plug-in for a project's tests of a candidate: its fixtures, and the outcome of every test.

It writes to a file `passed` (names of tests), `problems` (by the name of a test or a file) and `errors` (why the
candidate could not be loaded). A test that is skipped, deselected, or expected to fail has not passed.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gatehouse.errors import GatehouseError
from gatehouse.evaluation.spec import described
from gatehouse.runtime.process import die_with_parent
from gatehouse.store.store import ArtifactStore
from gatehouse.training.predictor import Predictor

STORE, MODEL, ROWS, OUTCOME = (f"GATEHOUSE_CANDIDATE_{name}" for name in ("STORE", "MODEL", "ROWS", "OUTCOME"))
_LONGEST = 500
_passed: list[str] = []
_problems: dict[str, str] = {}
_errors: list[dict[str, Any]] = []


@pytest.fixture(scope="session")
def candidate() -> Predictor:
    """The candidate, ready to score: `candidate.predict_online([{"distance": 1400, …}])`."""
    try:
        return Predictor.load(ArtifactStore.open(os.environ[STORE]), os.environ[MODEL])
    except GatehouseError as error:
        _errors.append(described(error))
        raise


@pytest.fixture(scope="session")
def golden_rows() -> pa.Table:
    """The rows of the golden batch, with all columns of the training set."""
    return pq.read_table(os.environ[ROWS])


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    """End with the stage, whatever ends it."""
    die_with_parent()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note how each phase of a test ended."""
    if report.passed and not hasattr(report, "wasxfail"):
        if report.when == "call":
            _passed.append(report.nodeid)
        return
    _problems.setdefault(report.nodeid, _why(report))


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Note a file that cannot be imported, or that skips itself."""
    if not report.passed:
        _problems.setdefault(report.nodeid, _why(report))


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    """Note tests that the project's own hooks leave out."""
    _problems.update({item.nodeid: "was deselected" for item in items})


def pytest_sessionfinish(exitstatus: int) -> None:
    """Write the outcome; without this file no test has passed."""
    passed = [name for name in _passed if name not in _problems]
    outcome = {"passed": passed, "problems": _problems, "errors": _errors, "exit": exitstatus}
    Path(os.environ[OUTCOME]).write_text(json.dumps(outcome))


def _why(report: pytest.TestReport | pytest.CollectReport) -> str:
    if hasattr(report, "wasxfail"):
        return f"is expected to fail: {report.wasxfail}"
    if report.skipped:
        reason = report.longrepr[-1] if isinstance(report.longrepr, tuple) else report.longrepr
        return f"was skipped: {reason}"
    crash = getattr(report.longrepr, "reprcrash", None)
    lines = (crash.message if crash else str(report.longrepr)).strip().splitlines()
    return (lines[0] if crash else lines[-1])[:_LONGEST]
