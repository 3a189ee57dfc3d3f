"""Rules between keys are judged while other keys are wrong: those that read a wrong one wait until it is right."""

from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field, model_validator

from gatehouse.cli.init import create_project
from gatehouse.configuration.yaml_lines import load_model
from gatehouse.errors import ConfigurationError
from gatehouse.project.checking import check_project
from gatehouse.project.project_file import ProjectFile
from tests.small_example import EXAMPLE


class _Range(BaseModel, extra="forbid"):
    kind: Literal["range"]
    low: int
    high: int
    step: int = Field(1, ge=1)

    @model_validator(mode="after")
    def _in_order(self) -> "_Range":
        if self.low > self.high:
            raise ValueError("expected low <= high")
        return self

    @model_validator(mode="after")
    def _divided(self) -> "_Range":
        if (self.high - self.low) % self.step:
            raise ValueError("expected whole steps")
        return self


class _Choice(BaseModel):
    kind: Literal["choice"]
    of: tuple[str, ...]


class _Few(BaseModel, extra="forbid"):
    name: Literal["few"] = "few"


class _Many(BaseModel, extra="forbid"):
    name: Literal["many"] = "many"


class _Search(BaseModel):
    trials: int
    how: Annotated[_Few | _Many, Field(discriminator="name")] = _Many()
    first: Annotated[_Range | _Choice, Field(discriminator="kind")]
    others: dict[str, _Range] = {}

    @model_validator(mode="after")
    def _enough(self) -> "_Search":
        if isinstance(self.first, _Range) and self.trials > self.first.high:
            raise ValueError("expected fewer trials")
        return self

    @model_validator(mode="after")
    def _suits(self) -> "_Search":
        if self.how.name == "few" and self.trials > 1:
            raise ValueError("expected few trials")
        return self

    @model_validator(mode="after")
    def _written(self) -> "_Search":
        if self.model_dump()["trials"] == 9:
            raise ValueError("expected other than 9")
        return self


def _told(text: str) -> list[str]:
    problems: list[str] = []
    assert load_model("s", text, _Search, problems) is None
    return problems


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{trials: 9, first: {kind: range, low: 1, high: 2}}", ["fewer trials"]),
        (
            "{trials: 3, first: {kind: range, low: 3, high: 2, step: 0}}",
            ["first.step: ", "low <= high"],  # A rule above a section may rely on the section's own.
        ),
        ("{trials: 9, first: {kind: range, low: x, high: 2}}", ["first.low: ", "fewer trials"]),
        ("{trials: 9, first: {kind: range, low: 1, high: x, odd: 1}}", ["first.high: ", "odd: there is no such key"]),
        ("{trials: x, first: {kind: range, low: 1, high: 4, step: 2}}", ["trials: ", "first: expected whole steps"]),
        (
            "{trials: 1, first: {kind: choice, of: 1}, others: {a: {kind: range, low: 2, high: 1}, "
            "b: {kind: range, low: 4, high: 3, step: x}}}",
            ["first.of: ", "others.a: expected low <= high", "others.b.step: ", "others.b: expected low <= high"],
        ),
        # Nobody knows which one is meant.
        ("{trials: 2, first: {kind: range, low: 1, high: 2}, how: {}}", ["how: "]),
        ("{trials: 2, first: {kind: range, low: 1, high: 2}, how: {name: few, many: 1}}", ["how.many: ", "few trials"]),
        ("{trials: [1], first: 1}", ["trials: ", "first: "]),
    ],
)
def test_a_rule_is_told_beside_wrong_keys_unless_it_reads_one(text: str, told: list[str]) -> None:
    problems = _told(text)
    assert all(any(part in each for each in problems) for part in told), problems
    assert len(problems) == len(told), problems


def test_a_project_tells_its_rules_beside_a_wrong_key(tmp_path: Path) -> None:
    path = create_project("returns", tmp_path) / "project.yaml"
    text = (
        path.read_text().replace("epochs: 5", "epochs: 5\n    metric: rmse").replace("batch_size: 512", "batch_size: 0")
    )
    path.write_text(
        text.replace("train_until: 2024-07-01", "train_until: 2025-07-01").replace("processes: 1", "process: 1")
    )
    with pytest.raises(ConfigurationError) as caught:
        check_project(path.parent)
    for told in (
        "batch_size: ",
        "stopping.metric: the loss binary gives",
        "split: expected train_from <",
        "4 problems",
    ):
        assert told in str(caught.value), str(caught.value)


def test_a_rule_that_meets_a_broken_section_says_nothing() -> None:
    text = (EXAMPLE / "project.yaml").read_text().replace("trial_settings:", "trial_settings:\n    stopping.epoch: 2")
    problems: list[str] = []
    load_model("project.yaml", text, ProjectFile, problems, partly=True)
    assert len(problems) == 1 and "did you mean stopping.epochs?" in problems[0], problems


@pytest.mark.parametrize("text", ["a: 0x_", "a: !!set [1]", "a: !!int x"])
def test_a_value_that_yaml_cannot_read_is_told(text: str) -> None:
    problems: list[str] = []
    assert load_model("s", text, _Search, problems) is None
    assert len(problems) == 1 and problems[0].startswith("s"), problems
