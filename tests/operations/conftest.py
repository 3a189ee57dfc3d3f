"""A webhook without pauses between attempts, in a run of its own."""

from collections.abc import Iterator

import pytest

from gatehouse.operations import notice
from gatehouse.store.run import RUN_ID
from tests.operations.hook import Hook, hooked

RUN = "20240110-000000-abcd"


@pytest.fixture(autouse=True)
def _in_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1,localhost")
    monkeypatch.setenv(RUN_ID, RUN)
    monkeypatch.delenv(notice.ADDRESS, raising=False)
    monkeypatch.delenv("GATEHOUSE_KFP_ENDPOINT", raising=False)
    monkeypatch.setattr(notice, "_BACKOFF", 0.001)


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hook]:
    with hooked(200) as hook:
        monkeypatch.setenv(notice.ADDRESS, hook.url)
        yield hook
