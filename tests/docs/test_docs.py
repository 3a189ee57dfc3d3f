"""The documentation: generated pages are what their scripts make, links lead somewhere, nothing names a machine."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
import yaml
from pydantic import BaseModel

from gatehouse.training.spec import train_spec
from gatehouse.tuning.configuration import infeasible
from gatehouse.tuning.spec import ExperimentSpec, Pruner, Sampler
from tests.source_tree import ROOT

SCRIPTS = sorted((ROOT / "docs").glob("[a-z]*.py"))
_LEFT_OUT = {".venv", "node_modules", ".gatehouse", "build", "dist"}
_LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")
_ANCHOR = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)


def _pages() -> list[Path]:
    result = [
        path
        for pattern in ("*.md", "docs/**/*.md", "components/**/*.md", "feature_repo/**/*.md", "pipelines/**/*.md")
        for path in ROOT.glob(pattern)
        if not _LEFT_OUT & set(path.relative_to(ROOT).parts)
    ]
    assert len(result) > 20, "too few pages: this test looks in the wrong place"
    return sorted(set(result))


every_page = pytest.mark.parametrize("page", _pages(), ids=lambda page: page.relative_to(ROOT).as_posix())


def _prose(page: Path) -> str:
    return re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)


def _anchors(page: Path) -> Iterator[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    for heading in _ANCHOR.findall(_prose(page)):
        yield re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_generated_pages_are_current(script: Path) -> None:
    ended = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


@every_page
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for target in _LINK.findall(re.sub(r"`[^`\n]*`", "", _prose(page))):
        path, _, anchor = target.partition("#")
        if re.match(r"[a-z]+:", path):
            continue
        led = (page.parent / path).resolve() if path else page
        if not led.exists() or (anchor and anchor not in set(_anchors(led))):
            broken.append(target)
    assert broken == []


@every_page
def test_no_page_names_a_machine(page: Path) -> None:
    assert re.findall(r"(?<![\w.`<])/(?:home|work|root|tmp|Users|mnt)/\S*", page.read_text(encoding="utf-8")) == []


TUNING = (ROOT / "docs" / "tuning.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```yaml\n(.*?)```", TUNING, re.DOTALL)
SNIPPETS = [item for item in BLOCKS if item.startswith("tuning:")]


@pytest.mark.parametrize("snippet", SNIPPETS, ids=range(len(SNIPPETS)))
def test_every_snippet_is_an_experiment(snippet: str) -> None:
    spec = ExperimentSpec.model_validate(yaml.safe_load(snippet)["tuning"])
    base = train_spec({"model": {"architecture": "tabular_mlp"}, "stopping": {"epochs": 6}})
    assert infeasible(spec, base) == []


@pytest.mark.parametrize("model", [Sampler, Pruner])
def test_the_page_names_every_algorithm(model: type[BaseModel]) -> None:
    names = get_args(model.model_fields["name"].annotation)
    assert len(names) >= 5
    assert [name for name in names if f"| `{name}`" not in TUNING] == []
