"""A program of the suite: what the machine does to it is no verdict, and nothing that it started stays."""

import contextlib
import os
import select
import subprocess
from pathlib import Path

import pytest

from gatehouse.evaluation.integration.child import UntriedError, run

_STARTS = "import os, subprocess\nsleep = subprocess.Popen(['sleep', '600'], start_new_session={})\n"
_STARTS += "open('started', 'w').write(str(sleep.pid))\n"


@pytest.mark.parametrize(
    ("own_session", "then", "raised"),
    [
        (False, "sleep.wait()", "expected it to end within 5 s, but it is still running"),
        (True, "sleep.wait()", "expected it to end within 5 s, but it is still running"),
        (False, "os.kill(os.getpid(), 9)", "expected an exit code, but it was ended by SIGKILL"),
        (False, "", ""),
    ],
)
def test_what_a_program_started_ends_with_it_and_trouble_of_the_machine_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_session: bool, then: str, raised: str
) -> None:
    wait, started = subprocess.Popen.wait, []

    def until_it_started(child: "subprocess.Popen[str]", timeout: float | None = None) -> int:
        if timeout and not started:
            started.append(os.pidfd_open(int((tmp_path / "started").read_text())))
            if "wait" in then:
                raise subprocess.TimeoutExpired("it", timeout)
        return wait(child)

    os.mkfifo(tmp_path / "started")
    monkeypatch.setattr(subprocess.Popen, "wait", until_it_started)  # No clock decides.
    with pytest.raises(UntriedError, match=raised) if raised else contextlib.nullcontext():
        assert run(["-c", _STARTS.format(own_session) + then], 5, tmp_path) == (0, "nothing was said")
    assert select.select(started, [], [], 60)[0] == started


def test_a_program_that_fails_is_told_by_the_last_line_that_it_wrote(tmp_path: Path) -> None:
    assert run(["-c", "raise ValueError('no such layer')"], 60, tmp_path) == (1, "ValueError: no such layer")
