"""A builder of one's own: an edit of its package is another computation, for memo, checkpoints, tuning and pods."""

import sys
from pathlib import Path

import pytest

from gatehouse.launchers.kubernetes.transfer import JobRecord, program_code
from gatehouse.store.builder_code import BuilderError, builder_code
from gatehouse.training.stage import PROGRAM, TrainRequest, job_key, train
from gatehouse.tuning.spec import ExperimentSpec, ParameterSpec
from gatehouse.tuning.stage import TuneRequest, tune
from tests.training.specs import network

BUILDER = "own_models.wide:build"
REFERENCE = f"training-sets/flights/sha256-{'0' * 64}"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package without `__init__.py`, as one begins with; importing it would fail."""
    folder = tmp_path / "path" / "own_models"
    folder.mkdir(parents=True)
    (folder / "wide.py").write_text("raise RuntimeError\n")
    monkeypatch.syspath_prepend(folder.parent)
    return folder


def test_any_file_of_the_package_counts_but_what_python_leaves_there(package: Path) -> None:
    first = builder_code(BUILDER)
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "wide.cpython-311.pyc").write_bytes(b"compiled")
    (package / ".wide.py.swp").write_bytes(b"an editor's")
    assert builder_code(BUILDER) == first
    (package / "layers.py").write_text("# imported by wide")
    assert builder_code(BUILDER) != first
    assert "own_models" not in sys.modules


def test_a_builder_may_be_a_single_module_and_the_built_in_models_need_none(package: Path) -> None:
    codes = set()
    for text in ("first", "second"):
        (package.parent / "own_model.py").write_text(text)
        codes.add(builder_code("own_model:build"))
    assert len(codes) == 2 and builder_code("tabular_mlp", "xgboost") == ""
    with pytest.raises(BuilderError, match=r"own_absent"):
        builder_code("own_absent.wide:build")


def test_an_edit_of_the_builder_changes_the_keys_of_training_and_tuning(package: Path) -> None:
    data = dict.fromkeys(("split", "transformation"), REFERENCE)
    request = TrainRequest(**data, spec=network(BUILDER), model_name="flights")
    models = ({"architecture": "tabular_mlp"}, {"architecture": BUILDER})
    searched = ParameterSpec(name="model", type="categorical", choices=models)
    spec = ExperimentSpec(parameters=(searched,))
    tuned = TuneRequest(**data, base=network(), spec=spec, model_name="flights", seed=1)
    keys = []
    for code in ("relu", "tanh"):
        (package / "wide.py").write_text(code)
        keys.append((train.key(request), job_key(request), tune.key(tuned)))
    assert all(first != second for first, second in zip(*keys, strict=True))


def test_another_builder_is_another_program_to_a_pod(package: Path) -> None:
    job = JobRecord(PROGRAM, (BUILDER,), program_code(PROGRAM, [BUILDER]), "", 0)
    assert job.code == program_code(PROGRAM, [BUILDER])
    (package / "wide.py").write_text("tanh")
    assert job.code != program_code(PROGRAM, [BUILDER])
