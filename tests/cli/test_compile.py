"""`gatehouse compile`: for a platform, checked and released, as a user types it."""

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import gatehouse
from gatehouse.cli.projects import compile_specs
from gatehouse.errors import GatehouseError
from gatehouse.kfp.compilation.specification import SpecError, read_spec

EXAMPLE = Path(gatehouse.__file__).parent / "pipelines" / "projects" / "flights"
PROFILE = EXAMPLE / "platforms" / "cluster.yaml"
app = typer.Typer()
app.command()(compile_specs)


def _compile(*words: object) -> str:
    """What the command prints; an error that a user can act on is raised."""
    result = CliRunner().invoke(app, [str(EXAMPLE), *map(str, words)])
    if isinstance(result.exception, GatehouseError):
        result.exception.add_note(result.output)
        raise result.exception
    assert result.exit_code == 0, result.output
    return str(result.output)


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    """The example's profile, with digests in the place of its zeros."""
    profile = tmp_path / "cluster.yaml"
    profile.write_text(PROFILE.read_text().replace("0" * 64, "1" * 64))
    return profile


def test_specs_for_a_platform_are_released_and_checked(tmp_path: Path, profile: Path) -> None:
    words = ["--platform", profile, "--output", tmp_path / "now", "--release"]
    _compile(*words)
    assert read_spec(tmp_path / "now" / "flights-training.yaml").stamp["platform"] == "cluster"
    path = tmp_path / "now" / "flights-promotion.yaml"
    path.write_text(path.read_text().replace("Move the champion alias", "Move it"))
    path.with_name("flights-gone.yaml").write_text(path.read_text())
    with pytest.raises(SpecError) as caught:
        _compile(*words, "--check")
    assert "flights-gone.yaml is left over" in str(caught.value)
    assert f"{path} is not what the code compiles to" in str(caught.value)
