"""Tokens and their rate: what is stored of them, who is admitted, how often, and when no longer."""

import hashlib
import hmac
from datetime import UTC, datetime, timedelta

import pytest
from typer.testing import CliRunner

from gatehouse.cli.serve import app
from gatehouse.errors import ConfigurationError
from gatehouse.server.access import Rate, create_token, revoke_token, token_given, tokens_of
from gatehouse.store.store import ArtifactStore


def test_a_token_is_found_by_itself_until_it_expires(store: ArtifactStore) -> None:
    secret = create_token(store, "ada", ["run"], 2)
    now = datetime.now(UTC)
    token = token_given(tokens_of(store), secret, now)
    assert token is not None
    assert (token.name, token.may("read"), token.may("run"), token.may("promote")) == ("ada", True, True, False)
    assert token_given(tokens_of(store), secret, now + timedelta(days=3)) is None
    assert secret not in "".join(store.objects.get_bytes(key).decode() for key in store.objects.list("server"))


@pytest.mark.parametrize("change", ["", "x", " ", "\udcff", "cut", "other"])
def test_nothing_else_is_admitted(store: ArtifactStore, change: str) -> None:
    secret = create_token(store, "ada", ["run"], 2)
    other = create_token(store, "bob", ["promote"], 2)
    forms = {"": "", "cut": secret[:-1], "other": secret[:18] + other[18:]}
    assert token_given(tokens_of(store), forms.get(change, secret + change), datetime.now(UTC)) is None


@pytest.mark.parametrize("presented", ["known", "another's number", "nobody's number", "no token"])
def test_hashes_are_compared_in_constant_time_whoever_is_named(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch, presented: str
) -> None:
    compared: list[tuple[str, str]] = []

    def compare(stored: str, shown: str) -> bool:
        compared.append((stored, shown))
        return compare_digest(stored, shown)

    compare_digest = hmac.compare_digest
    secret, other = (create_token(store, name, ["run"], 2) for name in ("ada", "bob"))
    forms = {"known": secret, "another's number": other[:19] + secret[19:], "no token": "x"}
    shown = forms.get(presented, f"gatehouse_00000000_{secret[19:]}")
    monkeypatch.setattr(hmac, "compare_digest", compare)
    assert (token_given(tokens_of(store), shown, datetime.now(UTC)) is not None) == (presented == "known")
    ((stored, hashed),) = compared
    assert len(stored) == len(hashed) == 64
    assert hashed == hashlib.sha256(shown.encode()).hexdigest()


def test_a_revoked_token_is_refused_and_a_second_time_is_no_error(store: ArtifactStore) -> None:
    secret = create_token(store, "ada", ["read"], 2)
    number = secret.split("_")[1]
    for _ in range(2):
        assert revoke_token(store, number).name == "ada"
    assert token_given(tokens_of(store), secret, datetime.now(UTC)) is None
    with pytest.raises(ConfigurationError, match=f"expected one of {number}, found 'ada'"):
        revoke_token(store, "ada")


def test_a_burst_passes_and_then_what_comes_back() -> None:
    clock = [0.0]
    rate = Rate(2, 3, lambda: clock[0])
    assert [rate.wait("ada") for _ in range(5)] == [0, 0, 0, 0.5, 0.5]
    assert rate.wait("bob") == 0
    clock[0] = 0.5
    assert [rate.wait("ada") for _ in range(2)] == [0, 0.5]
    clock[0] = 1000.0
    assert [rate.wait("ada") for _ in range(4)] == [0, 0, 0, 0.5]


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
    serves = "gatehouse.server.draining.DrainingServer.run"  # It serves until killed.
    monkeypatch.setattr(serves, lambda *_: order.append("threads serve"))
    ended = CliRunner().invoke(app, ["--store", store.address])
    assert (ended.exception, order) == (None, ["MLflow is imported", "threads serve"])
