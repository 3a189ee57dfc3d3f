"""`gatehouse kueue`: the objects of a profile."""

from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

import gatehouse
from gatehouse.cli import kueue
from gatehouse.errors import ConfigurationError

PROFILE = Path(gatehouse.__file__).parent / "pipelines" / "projects" / "flights" / "platforms" / "cluster.yaml"


def _ran(*arguments: str) -> str:
    ended = CliRunner().invoke(kueue.app, list(arguments), catch_exceptions=False)
    assert ended.exit_code == 0, ended.output
    return ended.output


def test_manifests_are_yaml_for_kubectl() -> None:
    objects = list(yaml.safe_load_all(_ran("manifests", str(PROFILE))))
    queues = [one["metadata"] for one in objects if one["kind"] == "LocalQueue"]
    assert {(one["namespace"], one["name"]) for one in queues} >= {("ml-flights", "flights"), ("ml-vision", "flights")}


def test_a_profile_without_teams_says_so(tmp_path: Path) -> None:
    profile = tmp_path / "here.yaml"
    profile.write_text("name: here\nstore: gs://bucket/gatehouse\n")
    with pytest.raises(ConfigurationError, match="has no section kueue"):
        CliRunner().invoke(kueue.app, ["manifests", str(profile)], catch_exceptions=False)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ("queue: ''", "queue: expected the name"),
        ("namespace: x", "expected one of a team"),
        ("pods: {priority_class: other}", "expected one of kueue.priorities"),
    ],
)
def test_a_profile_whose_pods_would_not_be_admitted_is_refused(tmp_path: Path, changed: str, said: str) -> None:
    body = yaml.safe_load(PROFILE.read_text()) | yaml.safe_load(changed)
    profile = tmp_path / "here.yaml"
    profile.write_text(yaml.safe_dump(body))
    with pytest.raises(ConfigurationError, match=said):
        CliRunner().invoke(kueue.app, ["manifests", str(profile)], catch_exceptions=False)
