"""`gatehouse why` over a store with runs of the split: it names the input, field, module or version that differs."""

import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from click.testing import Result
from typer.testing import CliRunner

from gatehouse.cli.why import why
from gatehouse.data.splitting.spec import RandomSplit
from gatehouse.data.splitting.stage import SplitRequest, split
from gatehouse.errors import ConfigurationError
from gatehouse.store import stage as stages
from gatehouse.store.code import Code, code_of
from gatehouse.store.run import RUN_ID
from gatehouse.store.stage import Declaration, Stage, StageModel
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


def _edited(monkeypatch: pytest.MonkeyPatch, change: Callable[[Code], Code]) -> None:
    """Have the code of stages be another one, as after an edit."""
    monkeypatch.setattr(stages, "code_of", lambda module: change(code_of(module)))


def _why(*arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(app, [*arguments])
    assert result.exit_code == code, f"{result.output}\n{result.exception!r}"
    return result


def _differing(store: ArtifactStore, *runs: str) -> list[tuple[str, str]]:
    printed = _why("split", *runs, "--store", store.address, "--json").output
    return [(each["part"], each["name"]) for each in json.loads(printed)]


def test_a_field_of_the_configuration_is_named_with_both_values(store: ArtifactStore, run: Run) -> None:
    run("a")
    run("b", seed=8)
    assert _differing(store, "a", "b") == [("field", "spec.seed")]
    told = _why("split", "a", "b", "--store", store.address).output
    assert "split ran in b, under another key than in a" in told
    assert [line.split() for line in told.splitlines() if "spec.seed" in line] == [
        ["field", "spec.seed", "default", "8"]
    ]


def test_an_input_is_named_and_who_made_it(store: ArtifactStore, run: Run) -> None:
    run("a")
    run("b", rows=210)
    assert _differing(store, "a", "b") == [("input", "training_set")]
    told = _why("split", "a", "b", "--store", store.address).output
    assert told.count("training-sets/service/sha256-") == 2
    assert "gatehouse why retrieve_training_set a b" in told


def test_an_edited_module_is_named_alone(store: ArtifactStore, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run("a")
    _edited(monkeypatch, lambda code: replace(code, modules=code.modules | {DIVIDE: "f" * 64}))
    run("b")
    assert _differing(store, "a", "b") == [("module", DIVIDE)]


def test_a_package_of_another_version_is_named(store: ArtifactStore, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run("a")
    _edited(monkeypatch, lambda code: replace(code, distributions=code.distributions | {"numpy": "9.9.9"}))
    run("b", seed=8)
    assert _differing(store, "a", "b") == [("field", "spec.seed"), ("distribution", "numpy")]
    assert "9.9.9" in _why("split", "a", "b", "--store", store.address).output


def test_code_that_is_not_recorded_is_told_by_its_digest(
    store: ArtifactStore, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("a")
    key = f"code/{split.code_here()}.json"
    _edited(monkeypatch, lambda code: replace(code, modules=code.modules | {DIVIDE: "f" * 64}))
    run("b")
    found = store.objects.stat(key)
    assert found is not None and store.objects.delete(key, found.generation)
    ((part, name),) = _differing(store, "a", "b")
    assert part == "code" and "not recorded" in name


def test_the_same_key_is_said_to_be_the_same(store: ArtifactStore, run: Run) -> None:
    run("a")
    run("b")
    run("c", force="nonce")
    assert _differing(store, "a", "b") == []
    assert (
        "same key in both runs. In b it came from the memo." in _why("split", "a", "b", "--store", store.address).output
    )
    assert "In c it was forced" in _why("split", "a", "c", "--store", store.address).output


class Request(StageModel):
    """A number."""

    seed: int = 0


class Result_(StageModel):
    """Nothing."""


def test_code_of_the_project_that_a_request_names_is_told_beside_other_causes(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compute(request: Request, store: ArtifactStore) -> Result_:
        return Result_()

    for run, digest, seed in (("1", "1", 0), ("2", "2", 0), ("3", "3", 8)):
        monkeypatch.setenv(RUN_ID, run)
        stage = Stage(Declaration("split", "Split"), compute, lambda request, digest=digest * 64: digest)
        stage(Request(seed=seed), store)
    own = ("own code", "the package of yours that the request names")
    assert _differing(store, "1", "2") == [own]
    assert _differing(store, "1", "3") == [("field", "seed"), own]
    assert ["own", "code", "1" * 64] in [
        line.split() for line in _why("split", "1", "--store", store.address).output.splitlines()
    ]


def test_one_run_is_told_with_all_that_it_depended_on(store: ArtifactStore, run: Run) -> None:
    run("a", seed=8)
    told = _why("split", "a", "--store", store.address).output
    assert "split ran in a." in told and split.code_here() in told
    assert ["spec.seed", "8"] in [line.split() for line in told.splitlines()]
    body = json.loads(_why("split", "a", "--store", store.address, "--json").output)
    assert body["event"] == "finished" and body["request"]["spec"]["seed"] == 8


def test_a_stage_is_told_by_its_fields_modules_and_packages() -> None:
    lines = [line.strip() for line in _why("split").output.splitlines()]
    assert {"training_set", "spec"} <= set(lines) and any(line.startswith("numpy ") for line in lines)
    assert any(line.startswith("gatehouse.data.splitting (") for line in lines)
    assert DIVIDE in json.loads(_why("split", "--json").output)["modules"]
    body = json.loads(_why("train", "--json").output)
    assert "live" in body["left_out"] and "live" not in body["fields"] and "spec" in body["fields"]
    assert len(set(body["left_out"])) == len(body["left_out"]), "models in place of each other have fields of one name"
    assert _why("resolve").output.startswith("resolve runs every time. ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["spilt"], r"no stage 'spilt' \(did you mean split\?\): expected one of .*split"),
        (["split", "none"], "Run none has no key of split: .*The newest runs of .* are a"),
        (["train", "a"], "Run a has no key of train: it has those of split"),
    ],
)
def test_what_is_not_there_is_named(store: ArtifactStore, run: Run, arguments: list[str], said: str) -> None:
    run("a")
    result = _why(*arguments, "--store", store.address, code=1)
    with pytest.raises(ConfigurationError, match=said):
        raise result.exception or AssertionError
