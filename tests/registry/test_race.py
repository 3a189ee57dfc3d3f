"""A short race of killed processes; and the check of its history finds what contradicts the ledger."""

import subprocess
import sys

import pytest

from gatehouse.registry.ledger import Record, Verdict, VerdictSubject
from tests.registry.race import Operation, problems

A, B = "ended before", "began after"


def test_a_race_leaves_one_champion_and_loses_nothing() -> None:
    command = [sys.executable, "-m", "tests.registry.race", "--processes", "5", "--seconds", "1", "--acts", "25"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr[-3000:]
    assert " 0 problems" in ended.stdout


def _ledger(*reasons: tuple[str, int]) -> list[Record]:
    subjects = [
        VerdictSubject(model=f"models/m/sha256-{number:064x}", training_set="t", split="s", policy="p")
        for number in (1, 2)
    ]
    verdicts = [Verdict(subject=subject, champion="", evaluation="e", verdict="pass") for subject in subjects]
    begun = [
        Record(kind="registered", version=number, verdict=verdict) for number, verdict in enumerate(verdicts, start=1)
    ]
    first = Record(kind="promoted", version=1, alias="champion", reason="begin")
    promoted = [
        Record(kind="promoted", version=version, alias="champion", reason=reason) for reason, version in reasons
    ]
    return [*begun, first, *promoted]


def _operation(key: str, version: int, began: float, ended: float, answer: str = "done", **more: int) -> Operation:
    return Operation(key, "promote" if answer != "read" else "read", version, "champion", began, ended, answer, **more)


def test_a_history_that_fits_has_no_problems() -> None:
    history = [_operation(A, 2, 0, 1, size=4, champion=2), _operation(B, 1, 2, 3, size=5, champion=1)]
    history += [_operation("read", 0, 2.5, 4, "read", size=4, champion=2), _operation("killed", 1, 2, float("inf"), "")]
    assert list(problems(_ledger((A, 2), (B, 1)), 3, history)) == []


@pytest.mark.parametrize(
    ("ledger", "history", "problem"),
    [
        ([], [_operation(A, 2, 0, 1, size=3, champion=1)], "its record is lost"),
        ([(A, 2), (B, 1), (A, 2)], [_operation(A, 2, 0, 9, size=6, champion=2)], "was written before"),
        ([(A, 2)], [], "nobody asked for"),
        ([(B, 2), (A, 1)], [_operation(A, 1, 0, 1, size=5, champion=1), _operation(B, 2, 2, 3, size=4)], "began after"),
        ([(A, 2)], [_operation(A, 2, 0, 1, size=4, champion=1)], "saw champion 1"),
        ([(A, 2)], [_operation(A, 2, 0, 1, "refused")], "was refused, and is record 4"),
        ([], [_operation(A, 2, 0, 1, "refused")], "no state between"),
        ([(A, 2)], [_operation(A, 2, 0, 1, size=4), _operation("r", 0, 2, 3, "read", size=3)], "began after"),
    ],
)
def test_a_contradiction_to_the_ledger_is_found(
    ledger: list[tuple[str, int]], history: list[Operation], problem: str
) -> None:
    assert any(problem in text for text in problems(_ledger(*ledger), 3, history))
