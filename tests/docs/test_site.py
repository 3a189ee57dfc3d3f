"""The site of the documentation: its navigation has every page, and links lead to where files are on the site."""

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import yaml

from tests.source_tree import ROOT

DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def site(request: pytest.FixtureRequest) -> ModuleType:
    """The site's hooks; what they need of MkDocs, which is not installed here, is two names for types."""
    from importlib.util import module_from_spec, spec_from_file_location

    with pytest.MonkeyPatch.context() as patch:
        for name in ("files", "pages"):
            stand_in = ModuleType(name)
            stand_in.__dict__.update(File=object, Files=object, Page=object)
            patch.setitem(sys.modules, f"mkdocs.structure.{name}", stand_in)
        spec = spec_from_file_location("site", DOCS / "_site.py")
        assert spec is not None and spec.loader is not None
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        return module


def _pages(navigation: Any) -> list[str]:
    if isinstance(navigation, str):
        return [navigation]
    inner = navigation.values() if isinstance(navigation, dict) else navigation
    return [page for item in inner for page in _pages(item)]


def test_every_page_is_in_the_navigation_once() -> None:
    text = (ROOT / "mkdocs.yml").read_text().replace("!!python/object/apply:pymdownx.slugs.slugify", "")
    listed = _pages(yaml.safe_load(text)["nav"])
    assert sorted(listed) == sorted(set(listed))
    assert {page.name for page in DOCS.glob("*.md")} <= set(listed)


@pytest.mark.parametrize(
    ("page", "text", "expected"),
    [
        ("index.md", "[a](docs/images.md#build)", "[a](images.md#build)"),
        ("images.md", "[locks](../locks) and [x](cluster.md)", "locks and [x](cluster.md)"),
        ("cluster.md", "[c](../CONTRIBUTING.md)", "[c](source/CONTRIBUTING.md)"),
        ("decisions/metrics.md", "[why](../project.md) [o](https://a.b/c)", "[why](../project.md) [o](https://a.b/c)"),
        ("source/CONTRIBUTING.md", "[p](docs/project.md)", "[p](../project.md)"),
        ("images.md", "```\n[no](../locks)\n```", "```\n[no](../locks)\n```"),
        ("images.md", "[s](../components/split)", "[s](source/components/split/README.md)"),
    ],
)
def test_links_lead_to_where_files_are_on_the_site(site: ModuleType, page: str, text: str, expected: str) -> None:
    at = SimpleNamespace(file=SimpleNamespace(src_uri=page))
    assert site.on_page_markdown(text, at, None, None) == expected
