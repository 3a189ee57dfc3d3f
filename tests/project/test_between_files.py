"""What the files of a project say against each other, and that a policy lets every candidate pass."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from gatehouse.cli.init import create_project
from gatehouse.project.checking import check_project

EVERY_RULE = (
    "bar",
    "baseline",
    "guessing",
    "leakage alarm",
    "champion",
    "slices",
    "slice",
    "validation",
    "leakage",
    "split checks",
)
BLUNT = {name: {"severity": "warn"} for name in (*EVERY_RULE, "test rows", "unseen rows", "integration")}


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"rules": BLUNT}, r"policy\.yaml:\d+: rules: no rule of this policy can refuse a candidate"),
        ({"rules": BLUNT | {"baseline log_loss": {}}}, ""),
        ({"rules": BLUNT, "max_psi": 1.0}, ""),
        ({"champion": {"relative_tolerance": 1000}}, r"champion\.relative_tolerance: 1000 .* worse by 100,000% of it"),
    ],
    ids=["all warn", "one refuses", "one more rule", "tolerance"],
)
def test_a_policy_that_lets_every_candidate_pass_is_warned_of(tmp_path: Path, asked: dict[str, Any], told: str) -> None:
    project = create_project("returns", tmp_path)
    path = project / "policy.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | asked))
    warned = check_project(project).warnings
    assert len(warned) == bool(told) and re.search(told, " ".join(warned)), warned


def test_a_column_of_a_view_that_no_feature_names_is_told(tmp_path: Path) -> None:
    project = create_project("returns", tmp_path)
    view = project / "features" / "views" / "order_content.sql"
    view.write_text(view.read_text().replace("category, amount", "category, amount, amount * 2 AS doubled"))
    (warned,) = check_project(project).warnings
    assert "views/order_content.sql: doubled: computed, and no feature, as definitions.py does not name it" in warned
