"""Lines of pods: each is kept once, whatever zone its node is in, and none for lack of a time of its own."""

from pathlib import Path
from typing import Any, cast

from gatehouse.launchers.kubernetes.api import KubernetesApi
from gatehouse.launchers.kubernetes.logs import PodLogs


def _logs(tmp_path: Path) -> PodLogs:
    return PodLogs(cast(KubernetesApi, None), "ml", "pytorch", tmp_path / "log", named=False)


def _kept(tmp_path: Path, *lines: str) -> list[str]:
    logs = _logs(tmp_path)
    for line in lines:
        logs._write("p", "u", line)
    logs.finish()
    return (tmp_path / "log").read_text().splitlines()


def test_lines_of_one_moment_are_all_kept_and_none_twice(tmp_path: Path) -> None:
    one, other = ("2026-01-01T00:00:00.123456789Z one", "2026-01-01T00:00:00.123456789Z other")
    later = "2026-01-01T00:00:00.13Z later"
    assert _kept(tmp_path, one, other, one, later, other, later) == ["one", "other", "later"]


def test_a_node_of_another_zone_is_asked_since_its_last_line(tmp_path: Path) -> None:
    logs = _logs(tmp_path)
    logs._write("p", "u", "2026-01-01T14:00:00.000000001+02:00 x")
    query: dict[str, Any] = logs._query("u")
    assert query["sinceTime"] == "2026-01-01T12:00:00Z"
