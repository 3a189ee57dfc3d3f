"""`gatehouse run`: what is refused before anything runs."""

import re
from pathlib import Path

import pytest
import yaml

from gatehouse.cli.run import run
from gatehouse.errors import ConfigurationError
from gatehouse.project.signatures import NAMES, stages
from tests.small_example import EXAMPLE


@pytest.mark.parametrize(
    ("name", "pipeline", "told"),
    [
        (
            "splitt",
            "training",
            r"found 'splitt' \(did you mean split\?\)\. .*: prepare, snapshot, validate",
        ),
        ("measure", "training", "found 'measure'. Its stages are, in order: "),
        ("split", "monitoring", "stage of monitoring, found 'split'"),
        ("alert", "training", "found 'alert': the project has no `alerts` that enables it"),
        ("split", "trainin", r"--pipeline: expected one of training, .*\(did you mean training\?\)"),
    ],
)
def test_a_stage_that_the_run_does_not_have_is_told_before_it_begins(
    tmp_path: Path, name: str, pipeline: str, told: str
) -> None:
    with pytest.raises(ConfigurationError, match=told):
        run(EXAMPLE, pipeline, store=str(tmp_path / "store"), until=name)
    assert not list(tmp_path.rglob("logs"))


@pytest.mark.parametrize("pipeline", NAMES)
def test_the_stages_that_are_offered_are_those_of_the_pipeline_in_its_order(pipeline: str) -> None:
    with (EXAMPLE.parent.parent / "compiled" / f"flights-{pipeline}.yaml").open() as file:
        spec = next(yaml.safe_load_all(file))
    tasks = next(each["dag"]["tasks"] for each in spec["components"].values() if "dag" in each)
    assert {re.sub(r"-\d+$", "", name).replace("-", "_") for name in tasks} <= {*stages(pipeline)}


def test_a_stage_that_the_project_has_no_section_for_is_told_before_a_run_begins(tmp_path: Path) -> None:
    (tmp_path / "project.yaml").write_text("name: small\ntuning:\n")
    with pytest.raises(ConfigurationError, match=r"--until: .* found 'tune': the project has no `tuning` that enables"):
        run(tmp_path, store=str(tmp_path / "store"), until="tune")
    assert not list(tmp_path.rglob("logs"))
