"""An alias as a verified folder: without store and MLflow, after damage, and as the champion moves."""

import shutil
from pathlib import Path

import pytest

from gatehouse.errors import CorruptArtifactError, StoreError
from gatehouse.registry.alias import Resolver, UnknownAliasError
from gatehouse.registry.promotion import rollback
from gatehouse.store.store import ArtifactStore
from tests.registry.gate import NAME, Gate


@pytest.fixture
def resolver(gate: Gate, tmp_path: Path) -> Resolver:
    gate.run(gate.model(1))
    resolver = Resolver(gate.store.address, NAME, tmp_path / "cache")
    resolver.refresh()
    return resolver


def _away(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise StoreError("the store does not answer")

    monkeypatch.setattr(ArtifactStore, "open", refuse)


def test_an_alias_is_a_folder_that_needs_no_store_also_in_another_process(
    resolver: Resolver, gate: Gate, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    resolved = resolver.resolve("champion", at_most=60)
    assert (resolved.version, resolved.model, resolved.record) == (1, gate.model(1), 3)
    assert (resolved.path / "model.json").read_bytes() == gate.store.read_bytes(resolved.model, "model.json")
    assert 0 <= resolved.age < 60
    _away(monkeypatch)
    shutil.rmtree(gate.store.address)
    assert Resolver(gate.store.address, NAME, tmp_path / "cache").resolve("staging").path == resolved.path
    known = Resolver(gate.store.address, NAME, tmp_path / "cache").resolve("champion", at_most=0)
    assert (known.path, known.age > 0) == (resolved.path, True), "the last known answer stays, and says its age"
    with pytest.raises(StoreError):
        Resolver(gate.store.address, NAME, tmp_path / "nothing").resolve("champion")


def test_the_champion_moves_with_a_refresh_and_its_files_are_here_before(
    resolver: Resolver, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate.run(gate.model(2))
    assert resolver.resolve("champion").version == 1
    assert resolver.refresh() and not resolver.refresh()
    with monkeypatch.context() as away:
        _away(away)
        assert resolver.resolve("champion").version == 2
    rollback(gate.store, NAME, 2)
    assert resolver.resolve("champion", at_most=0).version == 1
    with pytest.raises(UnknownAliasError, match=rf"{NAME}@canary: .*\(champion\)"):
        resolver.resolve("canary")


def test_a_store_that_has_fewer_records_than_before_is_away(resolver: Resolver, gate: Gate) -> None:
    with gate.store.workspace() as aside:
        shutil.move(gate.store.local_folder / "registry", aside / "registry")
        for _ in range(2):
            with pytest.raises(StoreError, match=r"has 0 records of delays: expected 3 or more"):
                resolver.refresh()
        assert resolver.resolve("champion").version == 1
        shutil.rmtree(resolver.folder)
        assert resolver.resolve("champion").version == 1
        shutil.rmtree(resolver.folder)
        assert resolver.refresh()
        with pytest.raises(UnknownAliasError):
            resolver.resolve("champion")
        shutil.move(aside / "registry", gate.store.local_folder / "registry")
    assert resolver.refresh()
    assert resolver.resolve("champion").version == 1


@pytest.mark.parametrize("damage", ["altered", "removed"])
def test_a_damaged_file_is_fetched_again_or_refused(
    resolver: Resolver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, gate: Gate, damage: str
) -> None:
    file = resolver.resolve("champion").path / "model.json"
    content = file.read_bytes()
    for running in (resolver, Resolver(gate.store.address, NAME, tmp_path / "cache")):
        file.write_bytes(b"x" * len(content)) if damage == "altered" else file.unlink()
        assert (running.resolve("champion").path / "model.json").read_bytes() == content
    file.write_bytes(b"x" * len(content)) if damage == "altered" else file.unlink()
    blind = Resolver(gate.store.address, NAME, tmp_path / "cache")
    _away(monkeypatch)
    with pytest.raises(CorruptArtifactError):
        blind.resolve("champion")


def test_a_file_that_was_only_touched_is_hashed_and_kept(resolver: Resolver, monkeypatch: pytest.MonkeyPatch) -> None:
    path = resolver.resolve("champion").path
    (path / "model.json").touch()
    _away(monkeypatch)
    assert resolver.resolve("champion").path == path
