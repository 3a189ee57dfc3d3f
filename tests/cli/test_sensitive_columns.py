"""What a source declares sensitive is shown nowhere: not on the screen, on a page, in a record or in a derived file."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from gatehouse.cli.data import app
from gatehouse.data.snapshot.stage import SnapshotRequest, snapshot
from gatehouse.data.sources.catalog import parse_source
from gatehouse.data.validation.contract import CONTRACT_FILE, contract_text, parse_contract
from gatehouse.data.validation.stage import ValidateRequest, validate
from gatehouse.errors import ConfigurationError, DeliveryError
from gatehouse.notebook.artifacts import Tables
from gatehouse.notebook.store import open_store
from gatehouse.store.run import RUN_ID
from gatehouse.store.store import ArtifactStore

NAMES = ("Slartibartfast", "Agrajag", "Eccentrica")
CODES = ("918273", "918274", "918275")
SECRETS = (*NAMES, *CODES)


def _snapshot(store: ArtifactStore, folder: Path, values: int, backfill: str = "") -> str:
    """A snapshot of 300 rows with two sensitive columns, a text and a number, and of a row that is set aside."""
    rows = [
        f"{number},2024-01-{1 + number % 28:02d}T00:00:00Z,{NAMES[number % values]},{CODES[number % values]}\n"
        for number in range(300)
    ]
    bad = f"none,2024-01-01T00:00:00Z,{NAMES[0]},{CODES[0]}\n400,2024-01-01T00:00:00Z,{NAMES[1]},x{CODES[1]}\n"
    (folder / "people.csv").write_text("".join(["id,at,holder,code\n", *rows, bad]))
    table = {
        "member": "people.csv",
        "columns": {"id": "int64", "at": "timestamp", "holder": "string", "code": "int64"},
        "event_time": "at",
        "sensitive": ["holder", "code"],
        "on_invalid": "reject",
        "reject_limit": 0.5,
    }
    source = parse_source({"name": "small", "kind": "files", "path": str(folder), "tables": {"people": table}})
    return snapshot(SnapshotRequest(source=source, backfill=backfill), store).snapshot


def _printed(store: ArtifactStore, *arguments: str) -> str:
    result = CliRunner().invoke(app, [*arguments, "--store", store.address])
    assert result.exit_code == 0, result.exception
    return result.output


def _leaks(text: str) -> list[str]:
    return [secret for secret in SECRETS if secret in text]


def test_sensitive_values_stay_in_their_table(
    store: ArtifactStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(RUN_ID, "run-1")
    first = _snapshot(store, tmp_path, 3)
    with pytest.raises(DeliveryError, match="200 rows") as refused:
        _snapshot(store, tmp_path, 2)
    assert not _leaks(str(refused.value))
    monkeypatch.setenv(RUN_ID, "run-2")
    second = _snapshot(store, tmp_path, 2, "names were corrected")
    taken = open_store(store.address).find(second)
    assert isinstance(taken, Tables) and taken.tables == ["people"]
    frame = taken.to_pandas()
    assert set(frame["holder"]) == set(frame["code"]) == {"***"} and len(frame) == 300
    assert taken.to_arrow(columns=["id"]).column_names == ["id"] and not _leaks(taken._repr_html_())
    with pytest.raises(ConfigurationError, match="people"):
        taken.to_arrow("persons")
    inferred = _printed(store, "infer-contract", first)
    promised = parse_contract(inferred).tables["people"].columns
    assert [name for name, column in promised.items() if column.sensitive] == ["holder", "code"]
    columns = "{holder: {type: string, allowed: [Arthur]}, code: {type: int64, max: 5}}"
    wrong = f"version: 1\ntables: {{people: {{columns: {columns}}}}}"
    for contract in (inferred, wrong):
        reference = str(store.publish("config", "contract", {CONTRACT_FILE: contract_text(parse_contract(contract))}))
        judged = validate(ValidateRequest(snapshot=second, contract=reference), store)
        assert not _leaks(" ".join(judged.reasons))
    assert judged.verdict == "fail" and len(judged.reasons) == 2
    table = store.manifest(first).derived_from["people"], store.manifest(second).derived_from["people"]
    printed = [
        inferred,
        _printed(store, "diff", first, second),
        _printed(store, "diff", *table, "--json"),
        _printed(store, "head", table[0]),
        *(_printed(store, "show", str(reference)) for reference in store.references()),
    ]
    assert not _leaks("".join(printed)) and "***" in printed[3]
    data = {entry.blob for item in table for entry in store.manifest(item).files}
    assert _leaks(repr(pq.read_table(store.paths(table[0])).to_pylist())) == list(SECRETS)
    for key in set(store.objects.list("")) - data:
        content = Path(store.address) / key
        # Bytes of Arrow hold texts as they are.
        text = repr(pq.read_table(content).to_pylist()) if key.endswith(".parquet") else content.read_text("latin-1")
        assert not _leaks(text), key
