"""Nothing is unpickled: no line of ours reads a format that can hold code, and a planted pickle does not run."""

import ast
import io
import pickle
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from gatehouse.evaluation.spec import EvaluationSpec, GatePolicy
from gatehouse.evaluation.stage import EvaluateRequest, evaluate
from gatehouse.registry.alias import Resolver
from gatehouse.registry.explanation import explain
from gatehouse.store.store import ArtifactStore
from gatehouse.training.checkpointing.checkpointer import Checkpointer
from gatehouse.training.model_spec import weights_file
from gatehouse.training.predictor import Predictor
from gatehouse.training.spec import CheckpointSpec
from tests.registry.gate import NAME, Gate, make_gate
from tests.source_tree import Source, sources

_MODULES = frozenset(
    ("pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve", "jsonpickle", "pickletools")
)
_CALLS = frozenset(
    ("load_pickle", "read_pickle", "to_pickle", "unsafe_load", "unsafe_load_all", "full_load", "full_load_all")
)
_OBJECT_COLLECTIVES = frozenset(
    ("all_gather_object", "broadcast_object_list", "gather_object", "scatter_object_list", "recv_object_list")
)
_SAFE_YAML = ("SafeLoader", "CSafeLoader", "BaseLoader", "CBaseLoader")
_FOLDERS = ("components", "pipelines", "feature_repo", "gatehouse", "images")
_ALLOWED = {
    # The ranks of one job tell each other small things over the connections that gloo or NCCL opened between them.
    ("gatehouse/training/checkpointing/checkpointer.py", "all_gather_object"),
    ("gatehouse/training/trainer.py", "all_gather_object"),
    ("gatehouse/operations/recovery_program.py", "all_gather_object"),
    ("gatehouse/training/trainer.py", "gather_object"),
    ("gatehouse/training/trees.py", "all_gather_object"),
    ("gatehouse/training/trees.py", "broadcast_object_list"),
}
"""What is not read from a file or a store, and so cannot be planted there."""


def _unpickling(source: Source) -> Iterator[tuple[int, str]]:
    """Line and name of everything in a file that can make code of data."""
    for name, line in source.imports():
        root, last = name.split(".")[0], name.rpartition(".")[2]
        if root in _MODULES:
            yield line, root
        elif last in _CALLS | _OBJECT_COLLECTIVES or name in ("torch.load", "torch.jit"):
            yield line, last
    safe = {*_SAFE_YAML, *_safe_loaders(source.tree)}
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            arguments = {item.arg: ast.unparse(item.value) for item in node.keywords}
            called = ast.unparse(node.func)
            if called in ("torch.load", "torch.jit.load") and arguments.get("weights_only") != "True":
                yield node.lineno, called
            if called in ("yaml.load", "yaml.load_all"):
                loader = arguments.get("Loader") or (ast.unparse(node.args[1]) if len(node.args) > 1 else "")
                if loader.rpartition(".")[2] not in safe:
                    yield node.lineno, called
            if node.func.attr in _CALLS | _OBJECT_COLLECTIVES:
                yield node.lineno, node.func.attr
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle" and ast.unparse(node.value) != "False":
            yield node.lineno, "allow_pickle"


def _safe_loaders(tree: ast.AST) -> Iterator[str]:
    """Classes that a file derives from a safe loader alone, or from such a class above it."""
    safe = set(_SAFE_YAML)
    for node in ast.walk(tree):
        bases = [ast.unparse(base).rpartition(".")[2] for base in node.bases] if isinstance(node, ast.ClassDef) else []
        if isinstance(node, ast.ClassDef) and bases and safe.issuperset(bases):
            safe.add(node.name)
            yield node.name


def test_no_line_of_ours_unpickles() -> None:
    result = {(source.name, line, what) for source in sources(*_FOLDERS) for line, what in _unpickling(source)}
    assert not [f"{name}:{line}: {what}" for name, line, what in result if (name, what) not in _ALLOWED]
    assert {(name, what) for name, _, what in result} >= _ALLOWED, "an exception is no longer needed"


class _Planted:
    """Makes a file where it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self._trace = trace

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return Path.touch, (self._trace,)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """The file that is there once a planted pickle has run."""
    return tmp_path / "trace"


def _pickled(trace: Path) -> bytes:
    planted = pickle.dumps(_Planted(trace))
    pickle.loads(planted)
    assert trace.exists(), "the pickle does what it is planted for"
    trace.unlink()
    return planted


def _saved_by_torch(trace: Path) -> bytes:
    file = io.BytesIO()
    torch.save(_Planted(trace), file)
    return file.getvalue()


@pytest.mark.parametrize("architecture", ["mlp", "xgboost"])
@pytest.mark.parametrize("form", [_pickled, _saved_by_torch])
def test_planted_weights_do_not_run(
    store: ArtifactStore, trace: Path, architecture: str, form: Callable[[Path], bytes]
) -> None:
    gate = make_gate(store)
    described = {"architecture": {"model": {"architecture": architecture}, "loss": "binary"}, "transformation": {}}
    model = store.publish(
        "models",
        NAME,
        {"model.json": str(described).replace("'", '"'), weights_file(architecture): form(trace)},
        derived_from={"training_set": gate.training_set, "split": gate.split},
    )
    with pytest.raises(Exception, match=r"(?i)header|json|input|format|magic"):
        Predictor.load(store, model)
    request = EvaluateRequest(model=str(model), split=gate.split, spec=EvaluationSpec(), policy=GatePolicy())
    with pytest.raises(Exception, match=r"(?i)header|json|input|format|magic"):
        evaluate(request, store)
    assert not trace.exists()


@pytest.mark.parametrize("what", ["blobs", "models", "registry", "measurements", "provenance", "evaluations"])
def test_a_planted_object_of_the_store_does_not_run(
    store: ArtifactStore, tmp_path: Path, trace: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gatehouse.registry.projection.tracking_of", lambda store: None)
    gate = make_gate(store)
    model = gate.model(1)
    gate.run(model)
    planted = list(store.objects.list(what))
    assert planted
    for key in planted:
        file = Path(store.address) / key
        file.chmod(0o644)
        file.write_bytes(_pickled(trace))
    fresh = ArtifactStore.open(store.address)
    acts: list[Callable[[], object]] = [
        lambda: explain(fresh, f"{NAME}@champion"),
        lambda: Resolver(fresh.address, NAME, tmp_path / "resolver").refresh(),
        lambda: Predictor.load(fresh, model),
        lambda: Gate(fresh, gate.training_set, gate.split).run(model),
        lambda: fresh.verify(model),
    ]
    for act in acts:
        with suppress(Exception):
            act()
    assert not trace.exists()


class _State:
    """What a training would save."""

    def state_dict(self) -> dict[str, Any]:
        return {"weights": torch.ones(5), "step": 1}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        raise AssertionError("a planted checkpoint was taken for one")


@pytest.mark.parametrize("pattern", ["manifest.json", "*.safetensors"])
def test_a_planted_checkpoint_does_not_run(tmp_path: Path, trace: Path, pattern: str) -> None:
    writing = Checkpointer(tmp_path, CheckpointSpec(every_steps=1))
    writing.maybe_save(_State(), 1)
    assert writing.finish()
    (planted,) = tmp_path.glob(f"steps/*/{pattern}")
    planted.chmod(0o644)
    planted.write_bytes(_pickled(trace))
    assert Checkpointer(tmp_path, CheckpointSpec(every_steps=1)).load(_State()) is None
    assert not trace.exists()
