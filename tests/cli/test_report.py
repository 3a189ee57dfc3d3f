"""`gatehouse report`: the page of an artifact, drawn where it is not there yet, and opened."""

import webbrowser
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from gatehouse.cli.data import report
from gatehouse.store import pages
from gatehouse.store.store import ArtifactStore

app = typer.Typer()
app.command()(report)
CHECKS = "split-checks"


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a browser was asked to open."""
    result: list[str] = []
    monkeypatch.setattr(webbrowser, "open", result.append)
    return result


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The artifacts of which a page was drawn, by a page that says no more than which one it is."""
    result: list[str] = []

    def page(store: ArtifactStore, reference: str) -> str:
        result.append(reference)
        return f"<html>{reference}</html>"

    monkeypatch.setattr("gatehouse.data.splitting.report.page", page)
    return result


def _report(store: ArtifactStore, *arguments: str) -> Path:
    result = CliRunner().invoke(app, [*arguments, "--store", store.address])
    assert result.exit_code == 0, f"{result.output}\n{result.exception!r}"
    return Path(result.output.strip())


def test_a_page_is_drawn_once_printed_and_opened(store: ArtifactStore, opened: list[str], drawn: list[str]) -> None:
    reference = store.publish(CHECKS, "service", {"checks.json": "{}"})
    page = _report(store, reference.short)
    assert page.read_text() == f"<html>{reference}</html>"
    assert opened == [page.as_uri()]
    assert _report(store, str(reference), "--no-open") == page
    assert drawn == [str(reference)] and opened == [page.as_uri()]


@pytest.mark.parametrize("digest", ["text_digests", "_templates_digest"])
def test_a_page_is_drawn_again_when_its_code_or_a_template_was_edited(
    store: ArtifactStore, drawn: list[str], monkeypatch: pytest.MonkeyPatch, digest: str
) -> None:
    reference = store.publish(CHECKS, "service", {"checks.json": "{}"})
    before = _report(store, str(reference), "--no-open")
    monkeypatch.setattr(pages, digest, lambda *modules: {"the page": "was edited"})
    after = _report(store, str(reference), "--no-open")
    assert after != before and before.is_file() and drawn == [str(reference)] * 2
