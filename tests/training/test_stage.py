"""The train stage: the same bits from every directory and after every interruption; and what the model holds."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gatehouse.launchers.launcher import TrainingFailedError
from gatehouse.launchers.ranks import FAULT
from gatehouse.store.identity import identity_of
from gatehouse.store.run import RUN_ID, events
from gatehouse.store.store import ArtifactStore
from gatehouse.training.spec import beginning
from gatehouse.training.stage import TrainRequest, TrainResult, _beginnings, forget_job, job_key, train
from tests.conftest import Once
from tests.training import synthetic
from tests.training.specs import vary
from tests.training.trained import SPEC, followed, log_of, request, train_once


@pytest.fixture(scope="session")
def trained(once: Once) -> tuple[ArtifactStore, TrainResult]:
    return train_once(once)


def test_a_run_that_is_killed_and_preempted_goes_on_and_ends_in_the_same_bits_in_another_directory(
    store: ArtifactStore, trained: tuple[ArtifactStore, TrainResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FAULT, "kill!:@17,preempt:@19")
    result = train(request(store), store)
    assert result == trained[1]
    log = "\n".join(log_of(store, result.model))
    for says in (
        # Its peer may end of the lost connection before the agent sees who was killed.
        "first to end, with SIGKILL|exitcode: -9|Connection (reset|closed) by peer",
        r"Resumed from checkpoint \S+ after step 1[56]\.",
        "Preempted after step (19|20), which is saved",
        r"Resumed from checkpoint \S+ after step (19|20)\.",
    ):
        assert re.search(says, log), log
    # The checkpoint after the last step of the second epoch may not be written when the kill comes.
    assert [log.count(f"epoch {epoch}/4") for epoch in (1, 2, 3, 4)] in ([1, 1, 1, 1], [1, 2, 1, 1])
    # What is left are metrics that nobody has asked to be shown yet.
    assert [path.name for path in (Path(store.address) / "scratch").iterdir()] == ["metrics"]


def test_a_run_that_its_experiment_stops_saves_and_goes_on_when_it_is_asked_for_again(
    store: ArtifactStore, trained: tuple[ArtifactStore, TrainResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(RUN_ID, "run-1")
    reported, result = followed(request(store), store, stop_after=1)
    assert result is None and sorted(reported) == [0, 1]
    assert [event.event for _, event in events(store, "run-1") if event.stage == "train"] == ["started", "stopped"]
    again, result = followed(request(store), store)
    assert result == trained[1]
    history = trained[0].read_json(result.model, "history.json")
    assert [{"epoch": epoch} | row for epoch, row in again.items()] == history, "the epochs before are reported again"
    assert all(again[epoch] == row for epoch, row in reported.items())
    assert any("Resumed from checkpoint" in line for line in log_of(store, result.model)), "it began anew"


def test_a_training_goes_on_from_what_another_one_of_the_same_beginning_has_kept(
    store: ArtifactStore, tmp_path: Path
) -> None:
    """Of the same bits as one that begins at the start; of another beginning nothing is taken."""
    constant = {"schedule": "constant", "warmup": 0.0, "processes": 1, "hidden": (8,)}
    whole = vary(SPEC, changes=[{"epoch": 1, "weight_decay": 0.5}, {"epoch": 2, "learning_rate": 0.03}], **constant)
    kept = request(store, beginning(whole, 2)).model_copy(update={"segment": 2})
    train(kept, store)
    assert train.key(kept) == train.key(request(store, beginning(whole, 2)))
    scratch = Path(store.address) / "scratch"
    assert sorted(path.name for path in scratch.iterdir()) == [f"kept-{job_key(kept)}", "metrics"]

    gone_on = train(request(store, whole).model_copy(update={"segment": 2}), store)
    log = "\n".join(log_of(store, gone_on.model))
    assert [log.count(f"epoch {epoch}/4") for epoch in (1, 2, 3, 4)] == [0, 0, 1, 1], log
    assert [row["epoch"] for row in store.read_json(gone_on.model, "history.json")] == [0, 1, 2, 3]

    apart = ArtifactStore.open(tmp_path / "apart")
    assert train(request(apart, whole), apart) == gone_on
    for other in (vary(whole, seed=8), vary(whole, schedule="cosine"), vary(whole, changes=[])):
        assert job_key(kept) not in (_beginnings(request(store, other).model_copy(update={"segment": 2})) or ())
    for training in (kept, request(store, whole)):
        forget_job(store, job_key(training))
    assert [path.name for path in scratch.iterdir()] == ["metrics"]


def test_the_manifest_names_its_origin_and_nothing_that_varies(trained: tuple[ArtifactStore, TrainResult]) -> None:
    store, result = trained
    manifest = store.manifest(result.model)
    assert [file.path for file in manifest.files] == ["history.json", "model.json", "weights.safetensors"]
    assert set(manifest.derived_from) == {"training_set", "split", "transformation"}
    assert manifest.configuration == identity_of(SPEC) and "checkpoints" not in manifest.configuration
    (key,) = store.objects.list(f"measurements/{result.model}")
    assert json.loads(store.objects.get_bytes(key))["settings"] == SPEC.model_dump(mode="json")
    described, fitted = store.read_json(result.model, "model.json"), manifest.derived_from["transformation"]
    assert described["architecture"]["model"] == SPEC.model.model_dump(mode="json"), "a default may change"
    assert described["transformation_reference"] == fitted
    assert described["feature_tables"] == {"legs": synthetic.FEATURE_TABLE}
    assert described["transformation"] == store.read_json(fitted, "transformation.json")
    everything = manifest.to_json() + store.read_text(result.model, "model.json")
    assert store.address not in everything
    assert "seconds" not in everything
    assert result.metrics["roc_auc"] > 0.7
    assert result.metrics["log_loss"] == min(row["log_loss"] for row in store.read_json(result.model, "history.json"))


@pytest.mark.parametrize("sensitive", [(), ("name",)])
def test_the_processes_of_the_stage_quote_no_row_where_a_column_is_sensitive(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch, sensitive: tuple[str, ...]
) -> None:
    monkeypatch.setenv(FAULT, "raise:@1")
    monkeypatch.setenv(RUN_ID, "run")
    source = str(store.publish("datasets", "people", {}, details={"sensitive": list(sensitive)}))
    training_set = synthetic.publish_training_set(store, synthetic.table(), snapshot=source)
    split, spec = synthetic.publish_split(store, training_set), vary(SPEC, processes=1)
    data = {"split": split, "transformation": synthetic.fitted(store, split)}
    with pytest.raises(TrainingFailedError) as raised:
        train(TrainRequest(**data, spec=spec, model_name="flights"), store)
    written = [path.read_text(errors="replace") for path in Path(store.address).rglob("*") if path.is_file()]
    assert any("injected fault, step 1" in text for text in (str(raised.value), *written)) == (not sensitive)
    assert not sensitive or "ValueError, whose words are not shown, as columns are" in str(raised.value)


def test_the_stage_module_imports_neither_torch_nor_arrow() -> None:
    code = (
        "import sys, gatehouse.training.stage, gatehouse.tuning.stage;"
        "print([name for name in ('torch', 'numpy', 'pyarrow', 'optuna', 'safetensors', 'kfp') if name in sys.modules])"
    )
    imported = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert imported.stdout.strip() == "[]"
