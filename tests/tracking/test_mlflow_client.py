"""A server that is away is found out in moments, and without MLflow."""

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


def test_a_reader_says_at_once_that_the_server_is_away_and_imports_no_mlflow(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    began = time.monotonic()
    with pytest.raises(ServerAwayError, match=f"MLflow at 127.0.0.1:{port} refuses connections .*refused") as caught:
        RunReader(f"http://me:secret@127.0.0.1:{port}")
    assert "secret" not in str(caught.value) and time.monotonic() - began < 30, "it tries as long as MLflow does"


def test_what_is_reached_in_another_way_is_left_to_mlflow(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    require_server("sqlite:////nowhere/mlflow.db")
    require_server("databricks")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    require_server(f"http://mlflow.example:{port}")


def test_a_client_loads_the_plug_ins_of_mlflow_but_not_that_which_imports_feast(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_second_client_hides_no_package_from_other_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load_mlflow()
    monkeypatch.setattr("gatehouse.tracking.mlflow_client.without", None)
    assert quiet_client(f"sqlite:///{tmp_path}/mlflow.db").tracking_uri.endswith("mlflow.db")


def test_a_parameter_is_the_same_text_in_whatever_order_its_keys_come() -> None:
    """MLflow refuses to change a parameter, and training and its manifest hold the same settings in two orders."""
    run, texts = SimpleNamespace(info=SimpleNamespace(start_time=0, run_id="1")), []
    client = SimpleNamespace(log_batch=lambda _, params: texts.extend(each.value for each in params))
    for change in ({"epoch": 1, "learning_rate": 0.1}, {"learning_rate": 0.1, "epoch": 1}):
        log(cast(Any, client), cast(Any, run), {"optimizer.changes": [change]})
    assert texts == ["[{'epoch': 1, 'learning_rate': 0.1}]"] * 2
