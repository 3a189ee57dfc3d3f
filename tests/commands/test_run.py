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
