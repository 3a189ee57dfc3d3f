"""A browser for the tests of pages."""

from collections.abc import Iterator

import pytest

from tests.reports.browser import Browser, launched


@pytest.fixture(scope="package")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Headless Chromium."""
    with launched(tmp_path_factory.mktemp("chromium")) as running:
        yield running
