"""The pytest plug-in for a project's tests of a candidate: its fixtures, and the outcome of every test.

It writes `passed`, the names of tests, `problems`, by the name of a test or a file, and `errors`, why the candidate
could not be loaded, to the file that the environment names. A test that is skipped, deselected, or expected to fail has
not passed.
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
from gatehouse.evaluation.integration.child import described
from gatehouse.runtime.process import die_with_parent
from gatehouse.store.store import ArtifactStore
from gatehouse.training.scoring.predictor import Predictor

STORE, MODEL, ROWS, TOLD = (f"GATEHOUSE_CANDIDATE_{name}" for name in ("STORE", "MODEL", "ROWS", "TOLD"))
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
    """Write it all down; without this file no test has passed."""
    passed = [each for each in _passed if each not in _problems]
    told = {"passed": passed, "problems": _problems, "errors": _errors, "exit": exitstatus}
    Path(os.environ[TOLD]).write_text(json.dumps(told))


def _why(report: pytest.TestReport | pytest.CollectReport) -> str:
    if hasattr(report, "wasxfail"):
        return f"is expected to fail: {report.wasxfail}"
    if report.skipped:
        said = report.longrepr[-1] if isinstance(report.longrepr, tuple) else report.longrepr
        return f"was skipped: {said}"
    crash = getattr(report.longrepr, "reprcrash", None)
    lines = (crash.message if crash else str(report.longrepr)).strip().splitlines()
    return (lines[0] if crash else lines[-1])[:_LONGEST]
