"""A server that is down is found out at once and without MLflow, which is loaded without Feast's plug-in."""

import sys
import time

import pytest

from gatehouse.tracking.mlflow_client import ServerAwayError, require_server
from gatehouse.tracking.runs import RunReader
from tests.ports import free_port


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def port() -> int:
    """A port at which nothing listens."""
    return free_port()


def test_a_server_that_is_down_is_an_error_at_once_without_mlflow(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    began = time.monotonic()
    with pytest.raises(ServerAwayError, match=f"MLflow at 127.0.0.1:{port} refuses connections .*refused") as caught:
        RunReader(f"http://me:secret@127.0.0.1:{port}")
    assert "secret" not in str(caught.value) and time.monotonic() - began < 30, "it tries as long as MLflow does"


def test_other_addresses_and_proxies_are_left_to_mlflow(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    require_server("sqlite:////nowhere/mlflow.db")
    require_server("databricks")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    require_server(f"http://mlflow.example:{port}")
