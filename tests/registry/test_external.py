"""Models that something else trained, through evaluation, gate, ledger and rollback, as a pipeline calls them."""

import bz2
import gzip
import io
import pickle
import tarfile
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xgboost
from kfp import dsl
from safetensors.numpy import save

from gatehouse.components import promote, register, resolve
from gatehouse.errors import ConfigurationError, CorruptArtifactError
from gatehouse.registry.card import card_body
from gatehouse.registry.explanation import compare, explain
from gatehouse.registry.external import PickleError, doubt_of
from gatehouse.registry.ledger import StaleVerdictError
from gatehouse.registry.registration import WrongEvaluationError
from gatehouse.registry.reproduction import NotReproducibleError, reproduce
from gatehouse.store.store import ArtifactStore
from tests.components import call, stored
from tests.evaluation.test_judging import ROWS, SHARES, TRUTH, judged

NAME = "ext"


class User:
    """A user of the components, with a store."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.address = folder, str(folder / "store")
        self.store = ArtifactStore.open(self.address)
        self.calls = 0

    def model(self, **files: bytes) -> dsl.Model:
        self.calls += 1
        artifact = dsl.Model(uri=str(self.folder / f"model-{self.calls}"))
        for name, content in (files or {"weights": b"1"}).items():
            (Path(artifact.path) / name).parent.mkdir(parents=True, exist_ok=True)
            (Path(artifact.path) / name).write_bytes(content)
        return artifact

    def judge(self, blur: float = 0.0, **arguments: Any) -> dsl.Artifact:
        """The evaluation of a candidate's scores, without a store, or with those of a champion in its store."""
        columns = {"label": TRUTH, "score": ((1 - blur) * SHARES + blur / 3).tolist()}
        if arguments.get("champion"):
            columns["old"] = (0.99 * SHARES + 0.01 / 3).tolist()
            arguments["champion_score"] = "old"
        made: dsl.Artifact = judged(self.folder, columns, task="multiclass", **arguments).evaluation
        return made

    def register(self, model: dsl.Model, evaluation: dsl.Artifact, **arguments: Any) -> Any:
        inputs = {"model": model, "evaluation": evaluation, "model_name": NAME, "store": self.address}
        made = call(register, self.folder, **inputs | arguments)
        made.summary = Path(made.summary.path).read_text()
        return made

    def champion(self) -> tuple[int, dsl.Model, dict[str, bytes]]:
        """The version of the champion, and its files."""
        made = call(resolve, self.folder, store=self.address, model_name=NAME)
        return made.version, made.model, {path.name: path.read_bytes() for path in Path(made.model.path).iterdir()}


@pytest.fixture
def user(tmp_path: Path) -> User:
    return User(tmp_path)


def test_a_model_of_any_origin_goes_from_judge_to_champion_and_back(user: User) -> None:
    nothing = user.champion()
    assert (nothing[0], nothing[2]) == (0, {})
    with pytest.raises(ConfigurationError, match="model_name"):
        call(resolve, user.folder, store=user.address, model_name="Texts of 2026")
    first = user.model(weights=b"1", notes=b"of a transformer")
    statements = {"data": "s3://texts", "configuration": {"rate": 0.1}, "reason": "the first"}
    made = user.register(first, user.judge(model=first, champion=nothing[1]), **statements)
    assert (made.decision, made.number, made.alias) == ("approved", 1, "champion")
    assert made.version.metadata == {
        "reference": made.version.metadata["reference"],
        **{"decision": "approved", "model_name": NAME, "version": "1", "alias": "champion"},
    }
    version, champion, files = user.champion()
    assert (version, files) == (1, {"weights": b"1", "notes": b"of a transformer"})
    assert champion.metadata["reference"] == made.version.metadata["reference"]
    assert user.register(first, user.judge(model=first), **statements).number == 1, "equal files are the same model"

    same = user.judge(model=first, champion=champion)
    assert user.register(first, same).decision == "approved", "the champion, made again, is the champion"
    second = user.model(weights=b"2")
    with pytest.raises(StaleVerdictError):
        user.register(second, user.judge(model=second))
    better = {"champion": {"tolerance": "50%"}}
    made = user.register(second, user.judge(model=second, champion=champion, policy=better), store="", seed="7")
    assert (made.decision, user.champion()[0]) == ("approved", 2)
    moved = {"store": user.address, "model_name": NAME, "version": 2}
    assert call(promote, user.folder, **moved).decision == "champion already"
    withdrawn = call(promote, user.folder, action="rollback", reason="too slow", **moved)
    assert (withdrawn.decision, withdrawn.number) == ("rolled back", 2)
    assert withdrawn.champion.metadata["reference"] == champion.metadata["reference"]
    assert user.champion()[2] == files
    bad = user.model(weights=b"3")
    refused = user.register(bad, user.judge(0.9, model=bad, champion=champion))
    assert (refused.decision, refused.number) == ("refused", 0) and refused.reasons
    assert refused.version.metadata["reference"] == "none"

    explained = explain(user.store, f"{NAME}:1")
    answers = {answer.question: dict(answer.facts) for answer in explained.answers}
    assert (answers["which data"], answers["which seeds"]) == ({"data": "s3://texts"}, {"seed": "not stated"})
    assert answers["which configuration"] == {"rate": "0.1"} and answers["who and why"]["why"] == "the first"
    card = card_body(f"{NAME}:1", user.store)
    assert "unseen rows" in card and "not stated" in card and "`weights`" in card and "Predictor" not in card
    with pytest.raises(NotReproducibleError):
        reproduce(user.store, f"{NAME}:1")


def test_rules_that_only_warn_and_another_policy_than_the_champions_are_warnings(user: User) -> None:
    first, second = user.model(weights=b"1"), user.model(weights=b"2")
    bars = {"bars": {"accuracy": {"min": 0.8}}}
    assert user.register(first, user.judge(model=first, policy=bars)).warnings == []
    lax = bars | {"rules": {name: {"severity": "warn"} for name in ("bar", "champion", "baseline")}}
    made = user.register(second, user.judge(0.999, model=second, champion=user.champion()[1], policy=lax))
    assert made.alias == "champion" and made.reasons == []
    rule, differs, looser = made.warnings
    assert rule.startswith("champion log_loss: ") and differs.endswith(": rules differ")
    assert looser.startswith("by the policy of the champion, the candidate is refused: ")


def test_links_of_a_model_are_followed_inside_of_its_folder_and_no_further(user: User) -> None:
    model = user.model(**{"step-9/weights": b"9"})
    folder = Path(model.path)
    (folder / "best").symlink_to("step-9")
    (folder / "last").symlink_to("step-9/weights")
    user.register(model, user.judge(model=model))
    version = explain(user.store, f"{NAME}:1").model
    paths = [entry.path for entry in user.store.manifest(version).files]
    assert paths == ["best/weights", "last", "step-9/weights"]
    other, better = user.model(weights=b"10"), {"champion": {"tolerance": "50%"}}
    judged = user.judge(model=other, champion=stored(user.store, version), policy=better)
    user.register(other, judged, data="newer texts")
    changed = {(change.part, change.name) for change in compare(user.store, f"{NAME}:1", f"{NAME}:2").changes}
    assert {("files", "weights"), ("files", "best/weights"), ("stated", "data")} <= changed
    (user.folder / "secrets").mkdir()
    for target in ("../secrets", "nothing", ".", "link", "/etc/hostname"):
        (folder / "link").symlink_to(target)
        with pytest.raises(ConfigurationError, match=f"found one to {target}"):
            user.judge(model=model)
        (folder / "link").unlink()


def test_an_evaluation_stands_for_the_files_that_it_judged(user: User) -> None:
    one, other = user.model(weights=b"1"), user.model(weights=b"2")
    with pytest.raises(WrongEvaluationError):
        user.register(other, user.judge(model=one))
    with pytest.raises(WrongEvaluationError, match="model="):
        user.register(one, user.judge())
    passed = user.judge(model=one, store=user.address)
    altered = user.judge(0.02, model=other)
    for path in Path(altered.path, "store", "blobs").rglob("*.json"):
        path.unlink()
        path.write_text("{}")
    with pytest.raises(CorruptArtifactError):
        user.register(other, altered)
    swapped, pair = user.model(a=b"1", b=b"2"), user.model(a=b"2", b=b"1")
    with pytest.raises(WrongEvaluationError):
        user.register(pair, user.judge(model=swapped))
    table = stored(user.store, str(user.store.publish("datasets", "a", {"a": "a"})))
    for nothing in (dsl.Artifact(uri=str(user.folder / "none")), user.model(), table):
        with pytest.raises(ConfigurationError):
            user.register(one, nothing)
    with pytest.raises(ConfigurationError):
        user.register(dsl.Model(uri=str(user.folder / "none")), passed)
    with pytest.raises(ConfigurationError, match="model_name"):
        user.register(one, passed, model_name="Not a name")
    with pytest.raises(ConfigurationError, match="store"):
        user.register(one, user.judge(model=one), store="")


def test_no_secret_of_a_statement_is_stored_or_shown(user: User) -> None:
    one, token = user.model(), "ghp_" + "0aB" * 12
    statements = {
        "code": f"https://bob:{token}@github.com/a/b at c0ffee",
        "environment": f"AWS_SECRET=pa55word {token}",
    }
    configuration = {"api_key": "pa55word", "run": {"url": "db?password=pa55word"}, "max_tokens": 512, "tokenizer": "b"}
    summary = user.register(one, user.judge(model=one), configuration=configuration, **statements).summary
    assert "github.com/a/b at c0ffee" in summary and "512" in summary
    assert "pa55word" not in summary and token not in summary
    for path in Path(user.address).rglob("*"):
        content = path.read_bytes() if path.is_file() else b""
        assert b"pa55word" not in content and token.encode() not in content, path


class Called:
    """What a pickle runs."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (print, ("run",))


def _zip(content: bytes, method: int = zipfile.ZIP_STORED) -> bytes:
    with zipfile.ZipFile(stream := io.BytesIO(), "w", method) as archive:
        archive.writestr("notes", b"text")
        archive.writestr("model/weights", content)
    return stream.getvalue()


def _tar(content: bytes, mode: Any = "w", kind: int = tarfile.PAX_FORMAT) -> bytes:
    with tarfile.open(fileobj=(stream := io.BytesIO()), mode=mode, format=kind) as archived:
        entry = tarfile.TarInfo("weights")
        entry.size = len(content)
        archived.addfile(entry, io.BytesIO(content))
    return stream.getvalue()


def _array(values: Any, save: Any = np.save) -> bytes:
    save(stream := io.BytesIO(), values)
    return stream.getvalue()


CALL, OLD = pickle.dumps(Called()), b"cos\nsystem\n(S'x'\ntR"
SEALED = _zip(CALL).replace(b"PK\x01\x02\x14\x03\x14\0\0\0", b"PK\x01\x02\x14\x03\x14\0\1\0")
"""A zip whose members are encrypted, says its directory."""
UNKNOWN = _zip(CALL, zipfile.ZIP_DEFLATED).replace(b"\x14\0\0\0\x08\0", b"\x14\0\0\0\x63\0")
V7 = bytearray(_tar(CALL, kind=tarfile.USTAR_FORMAT))
V7[257:265] = bytes(8)
V7[148:156] = b"%06o\0 " % (sum(V7[:148]) + 8 * ord(" ") + sum(V7[156:512]))
WIDE = np.dtype([(f"column{number}", "f8") for number in range(40)] + [("last", "O")])
PICKLES = {
    **{f"protocol{number}": pickle.dumps(Called(), number) for number in range(pickle.HIGHEST_PROTOCOL + 1)},
    **{"zip": _zip(CALL), "tar": _tar(CALL, "w:gz"), "bz2": bz2.compress(CALL), "zlib": zlib.compress(CALL)},
    **{"objects.npz": _array([Called()], np.savez), "model.joblib": b"", "model.PT": b"PK"},
    **{"encrypted": SEALED, "unsupported": UNKNOWN, "prefixed": b"#!/bin/sh\n" + _zip(CALL), "v7": bytes(V7)},
    **{"cut.zip": _zip(CALL)[:-30] + _zip(CALL)[-22:], "cut.gz": gzip.compress(CALL)[:-9]},
    **{"trailing": pickle.dumps(Called(), 0) + b"x", "garbage": OLD + b"\xff", "second": b"I1\n." + OLD + b"."},
    **{"hexadecimal": b"I0x1\n0" + OLD + b".", "instance": b"(S'x'\nios\nsystem\n.", "twice": _zip(_zip(CALL))},
    **{"wide.npy": _array(np.zeros(1, WIDE)), "zstd": b"\x28\xb5\x2f\xfd" + bytes(9), "plain": pickle.dumps([1.0])},
    **{
        "header": b"ABCD" + CALL,
        "GGUF": b"GGUF" + CALL,
        "PAR1": b"PAR1" + CALL,
        "keras.json.keras": _zip(b"\x89HDF\r\n"),
    },
    **{
        "modeling_x.py": b"import os",
        "library.so": b"\x7fELF",
        "saved_model.pb": b"\x08\x01\x12",
        "run": b"#!/bin/sh\n",
    },
    **{"env.yaml": b"!!python/object/apply:os.system [ls]", "long": b"F" + b"1" * (1 << 20) + b"\n0" + OLD},
}


def test_a_pickle_is_refused_wherever_it_hides_and_never_read(user: User, capsys: pytest.CaptureFixture[str]) -> None:
    assert [name for name, content in PICKLES.items() if not doubt_of(name, io.BytesIO(content))] == []
    model = user.model(**{"config.json": b"{}", "zip": PICKLES["zip"]})
    evaluation = user.judge(model=model)
    with pytest.raises(PickleError, match="zip"):
        user.register(model, evaluation)
    assert list(user.store.references("models")) == []
    allowed = user.register(model, evaluation, pickle_reason="from our own build")
    assert allowed.decision == "approved" and "from our own build" in allowed.summary
    assert ["zip" in warning for warning in allowed.warnings] == [True]
    assert "run" not in capsys.readouterr().out


def test_formats_of_data_alone_need_no_reason(tmp_path: Path) -> None:
    table, trees = pa.table({"a": [1.0]}), xgboost.train({}, xgboost.DMatrix(np.ones((8, 2)), np.arange(8)), 2)
    node = onnx.helper.make_node("Relu", ["a"], ["b"])
    ends = [[onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1])] for name in ("a", "b")]
    network = onnx.helper.make_model(onnx.helper.make_graph([node], "graph", *ends))
    pq.write_table(table, parquet := io.BytesIO())
    with pa.ipc.new_file(arrow := io.BytesIO(), table.schema) as writer:
        writer.write_table(table)
    formats = {
        **{"network.onnx": network.SerializeToString(), "a.parquet": parquet.getvalue(), "a.arrow": arrow.getvalue()},
        **{form: bytes(trees.save_raw(form)) for form in ("ubj", "json")},
        **{"llm.gguf": b"GGUF\3\0\0\0" + bytes(16), "tokenizer.model": b"\n\x0e\n\5<unk>\x15\0\0\0\0\x18\2"},
        **{"lightgbm": b"tree\nversion=v4\nobjective=regression\naverage_output\n", "vocab.txt": b"cat\ndog\nbird\n"},
        **{
            "README.md": "import os\nübung\n".encode(),
            "vocab": b"[PAD]\ncat\ndog\n",
            "none": b"",
            "a.zip": _zip(b"text"),
        },
        **{"many.npz": _array(np.ones(ROWS), np.savez), "one.npy": _array(np.zeros(1, WIDE.descr[:-1]))},
        **{"weights": save({"a": np.ones(3)}), "long.json": b'["' + "ü".encode() * (1 << 20) + b'"]'},
    }
    for header in (*range(0x0280, 0x0600, 8), 0x0178, 0x9C78, 0xDA78, 0x8E88):  # Lengths that begin as pickles do.
        formats[f"{header}"] = header.to_bytes(8, "little") + b'{"a":{"dtype":"F32"}}'.ljust(header) + bytes(64)
    assert [(name, why) for name, file in formats.items() if (why := doubt_of(name, io.BytesIO(file)))] == []
