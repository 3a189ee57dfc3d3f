"""The YAML of the page on tuning is an experiment that a project takes, with all that the page says of it."""

import re

import pytest
import yaml

from gatehouse.training.spec import train_spec
from gatehouse.tuning.algorithms import Algorithm, EarlyStopping
from gatehouse.tuning.configuration import infeasible
from gatehouse.tuning.spec import ExperimentSpec
from tests.source_tree import ROOT

PAGE = (ROOT / "docs" / "tuning.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
SNIPPETS = [item for item in BLOCKS if item.startswith("tuning:")]


@pytest.mark.parametrize("snippet", SNIPPETS, ids=range(len(SNIPPETS)))
def test_every_snippet_is_an_experiment(snippet: str) -> None:
    spec = ExperimentSpec.model_validate(yaml.safe_load(snippet)["tuning"])
    base = train_spec({"model": {"architecture": "tabular_mlp"}, "stopping": {"epochs": 6}})
    assert infeasible(spec, base) == []


@pytest.mark.parametrize("union", [Algorithm, EarlyStopping], ids=["algorithm", "early_stopping"])
def test_the_page_names_every_algorithm(union: object) -> None:
    models = union.__origin__.__args__  # type: ignore[attr-defined]  # The union inside of its annotations.
    names = [model.model_fields["name"].default for model in models]
    assert len(names) >= 5
    assert [name for name in names if f"| `{name}`" not in PAGE] == []
