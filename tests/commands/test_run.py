"""`gatehouse run`: what is refused before anything runs."""

from pathlib import Path

import pytest

from gatehouse.commands.run import run
from gatehouse.errors import ConfigurationError
from tests.small_example import EXAMPLE


@pytest.mark.parametrize(("name", "told"), [("valdate", "did you mean validate"), ("measure", "found 'measure'")])
def test_a_stage_that_does_not_exist_is_told_before_a_run_begins(tmp_path: Path, name: str, told: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"--until: expected a stage \(.*snapshot, .*{told}"):
        run(EXAMPLE, store=str(tmp_path / "store"), until=name)
    assert not list(tmp_path.rglob("logs"))


def test_a_stage_that_the_project_has_no_section_for_is_told_before_a_run_begins(tmp_path: Path) -> None:
    (tmp_path / "project.yaml").write_text("name: small\ntuning:\n")
    with pytest.raises(ConfigurationError, match=r"--until: .* found 'tune': the project has no `tuning` section"):
        run(tmp_path, store=str(tmp_path / "store"), until="tune")
    assert not list(tmp_path.rglob("logs"))
