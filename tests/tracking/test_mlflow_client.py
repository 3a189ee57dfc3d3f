"""A server that is down is found out at once and without MLflow, which is loaded without Feast's plug-in."""

import sys
import time
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gatehouse.tracking.mlflow_client import ServerAwayError, load_mlflow, log, quiet_client, require_server
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


def test_mlflow_is_loaded_once_with_its_plug_ins_but_feast_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlflow.utils import plugins

    registry = "mlflow.tracking.request_header.registry"
    entry_points = plugins.get_entry_points
    loaded: list[str] = []
    other = metadata.EntryPoint("ours", "collections:OrderedDict", "mlflow.request_header_provider")
    monkeypatch.setattr(plugins, "get_entry_points", lambda group: [*entry_points(group), other])
    monkeypatch.setattr(metadata.EntryPoint, "load", lambda point: loaded.append(point.module) or dict)
    monkeypatch.delitem(sys.modules, registry, raising=False)
    assert "feast" in {point.name for point in plugins.get_entry_points("mlflow.request_header_provider")}
    load_mlflow.cache_clear()
    quiet_client(f"sqlite:///{tmp_path}/mlflow.db")
    assert loaded == ["collections"]
    monkeypatch.delitem(sys.modules, registry)
    assert plugins.get_entry_points("mlflow.request_header_provider")[-1] == other
    monkeypatch.setattr("gatehouse.tracking.mlflow_client.without", None)
    quiet_client(f"sqlite:///{tmp_path}/mlflow.db")


def test_a_parameter_has_the_same_text_in_every_order_of_its_keys() -> None:
    """MLflow refuses to change a parameter, and training and its manifest hold the same settings in two orders."""
    run, texts = SimpleNamespace(info=SimpleNamespace(start_time=0, run_id="1")), []
    client = SimpleNamespace(log_batch=lambda _, params: texts.extend(param.value for param in params))
    for change in ({"epoch": 1, "learning_rate": 0.1}, {"learning_rate": 0.1, "epoch": 1}):
        log(cast(Any, client), cast(Any, run), {"optimizer.changes": [change]})
    assert texts == ["[{'epoch': 1, 'learning_rate': 0.1}]"] * 2
