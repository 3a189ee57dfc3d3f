"""`gatehouse why` over a store with runs of the split: it names the input, field, module or version that differs."""

import json
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from click.testing import Result
from typer.testing import CliRunner

from gatehouse.cli.pipelines import why
from gatehouse.data.splitting.spec import RandomSplit
from gatehouse.data.splitting.stage import SplitRequest, split
from gatehouse.errors import ConfigurationError
from gatehouse.store import stage as stages
from gatehouse.store.code import Code, code_of
from gatehouse.store.run import RUN_ID
from gatehouse.store.store import ArtifactStore

app = typer.Typer()
app.command()(why)
DIVIDE = "gatehouse.data.splitting.divide"
Run = Callable[..., None]


def _training_set(store: ArtifactStore, rows: int = 200) -> str:
    decision = np.datetime64("2024-01-01", "us") + np.arange(rows) * np.timedelta64(1, "h")
    columns = {
        "key": np.arange(rows),
        "decision_time": pa.array(decision, pa.timestamp("us", tz="UTC")),
        "label_time": pa.array(decision, pa.timestamp("us", tz="UTC")),
        "label": pa.array(np.arange(rows) % 2, pa.int8()),
    }
    with store.workspace() as workspace:
        pq.write_table(pa.table(columns), workspace / "p.parquet")
        files = {"p.parquet": workspace / "p.parquet"}
        details = {"label": "label", "entity_keys": ["key"]}
        reference = str(store.publish("training-sets", "service", files, rows=rows, details=details))
    store.append(f"provenance/{reference}", {"stage": "retrieve_training_set"})
    return reference


@pytest.fixture
def run(store: ArtifactStore, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the split of a training set under the id of a run, with some fields of its spec."""

    def split_in(run_id: str, rows: int = 200, force: str = "", **fields: object) -> None:
        monkeypatch.setenv(RUN_ID, run_id)
        spec = RandomSplit.model_validate({"strategy": "random", **fields})
        request = SplitRequest(training_set=_training_set(store, rows), spec=spec)
        split(request, store, force=force)

    return split_in


def _why(*arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(app, [*arguments])
    assert result.exit_code == code, f"{result.output}\n{result.exception!r}"
    return result


def _differing(store: ArtifactStore, *runs: str) -> list[tuple[str, str]]:
    printed = _why("split", *runs, "--store", store.address, "--json").output
    return [(difference["part"], difference["name"]) for difference in json.loads(printed)]


def test_a_field_of_the_configuration_is_named_with_both_values(store: ArtifactStore, run: Run) -> None:
    run("a")
    run("b", seed=8)
    assert _differing(store, "a", "b") == [("field", "spec.seed")]
    message = _why("split", "a", "b", "--store", store.address).output
    assert ["field", "spec.seed", "default", "8"] in [line.split() for line in message.splitlines()]


def test_an_input_is_named_and_who_made_it(store: ArtifactStore, run: Run) -> None:
    run("a")
    run("b", rows=210)
    assert _differing(store, "a", "b") == [("input", "training_set")]
    message = _why("split", "a", "b", "--store", store.address).output
    assert message.count("training-sets/service/sha256-") == 2
    assert "gatehouse why retrieve_training_set a b" in message


def test_an_edited_module_and_a_package_of_another_version_are_named(
    store: ArtifactStore, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("a")
    edited = {"modules": {DIVIDE: "f" * 64}, "distributions": {"numpy": "9.9.9"}}
    changed = Code(**{part: getattr(code_of(split.function.__module__), part) | edited[part] for part in edited})
    monkeypatch.setattr(stages, "code_of", lambda module: changed)  # As after an edit.
    run("b", seed=8)
    assert _differing(store, "a", "b") == [("field", "spec.seed"), ("module", DIVIDE), ("distribution", "numpy")]
    assert "9.9.9" in _why("split", "a", "b", "--store", store.address).output


def test_a_stage_is_told_by_its_fields_modules_and_packages() -> None:
    split_code = json.loads(_why("split", "--json").output)
    assert {"training_set", "spec"} <= set(split_code["fields"]) and "numpy" in split_code["distributions"]
    assert DIVIDE in split_code["modules"] and "gatehouse.data.splitting" in _why("split").output
    body = json.loads(_why("train", "--json").output)
    assert "live" in body["left_out"] and "live" not in body["fields"] and "spec" in body["fields"]
    assert len(set(body["left_out"])) == len(body["left_out"]), "models in place of each other have fields of one name"
    assert _why("resolve").output.startswith("resolve runs every time. ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["spilt"], r"no stage 'spilt' \(did you mean split\?\): expected one of .*split"),
        (["split", "none"], "Run none has no key of split: .*The newest runs of .* are a"),
        (["train", "a"], "Run a has no key of train: it has those of split"),
    ],
)
def test_what_is_not_there_is_named(store: ArtifactStore, run: Run, arguments: list[str], message: str) -> None:
    run("a")
    result = _why(*arguments, "--store", store.address, code=1)
    with pytest.raises(ConfigurationError, match=message):
        raise result.exception or AssertionError
