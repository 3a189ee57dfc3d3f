"""A pytest plugin that fails the session when a test is skipped for a reason that is not on a list.

`pytest -p tests.allowed_skips --allowed-skips FILE`; the file holds one regular expression a line.
"""

import re
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that names the list."""
    parser.addoption("--allowed-skips", type=Path, help="file with the reasons for which a test may be skipped")


def pytest_configure(config: pytest.Config) -> None:
    """Watch for skips where a list is given."""
    listed = config.getoption("--allowed-skips")
    if listed is not None:
        config.pluginmanager.register(_Skips(listed), "allowed-skips")


class _Skips:
    def __init__(self, listed: Path) -> None:
        self._listed = listed
        lines = (line.strip() for line in listed.read_text().splitlines())
        self._allowed = [re.compile(line) for line in lines if line and not line.startswith("#")]
        self._found: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._see(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._see(report)

    def _see(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if not report.skipped or hasattr(report, "wasxfail"):
            return
        text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reason = text.removeprefix("Skipped: ")
        if not any(pattern.fullmatch(reason) for pattern in self._allowed):
            self._found.append(f"{report.nodeid}: {reason}")

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._found and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._found:
            terminalreporter.section(f"skipped for a reason that is not in {self._listed}", red=True)
            for line in self._found:
                terminalreporter.line(line)
