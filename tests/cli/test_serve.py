"""`gatehouse serve token` as a person uses it."""

import pytest
from typer.testing import CliRunner

from gatehouse.cli.serve import app
from gatehouse.server.tokens import tokens_of
from gatehouse.store.store import ArtifactStore


def _ask(store: ArtifactStore, *words: str) -> str:
    ended = CliRunner().invoke(app, ["token", *words, "--store", store.address])
    if ended.exception:
        raise ended.exception
    return ended.output


def test_a_token_is_printed_once_listed_and_revoked(store: ArtifactStore) -> None:
    secret = _ask(store, "create", "ada", "--scope", "run", "--scope", "promote", "--days", "3").strip()
    (token,) = tokens_of(store).values()
    assert secret.startswith(f"gatehouse_{token.id}_")
    listed = _ask(store, "list")
    assert "ada" in listed
    assert "promote, run" in listed
    assert secret[19:] not in listed
    assert "revoked" not in listed
    assert "is revoked" in _ask(store, "revoke", token.id)
    assert "revoked" in _ask(store, "list")


def test_mlflow_is_imported_before_threads_serve(store: ArtifactStore, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    monkeypatch.setattr(  # Only the order is asked for, and neither ends by itself or undoes what it does.
        "gatehouse.tracking.mlflow_client.load_mlflow", lambda: order.append("MLflow is imported")
    )
    monkeypatch.setattr("uvicorn.run", lambda *_, **__: order.append("threads serve"))  # It serves until killed.
    ended = CliRunner().invoke(app, ["--store", store.address])
    assert (ended.exception, order) == (None, ["MLflow is imported", "threads serve"])
