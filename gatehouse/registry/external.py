"""Models that something else trained: their files, what a person says of them, and their evaluation."""

import bz2
import gzip
import io
import lzma
import os
import pickletools
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from gatehouse.errors import ConfigurationError, GatehouseError
from gatehouse.registry.ledger import Ledger
from gatehouse.registry.registration import WrongEvaluationError
from gatehouse.store.publishing import files_of
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore
from gatehouse.store.transfer import pull

_PICKLED = (".pkl", ".pickle", ".joblib", ".dill", ".pt", ".pth")
_CALLS = {"INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "REDUCE", "BUILD"}
"""Operations of a pickle by which it can run code."""
_COMPRESSED: dict[bytes, Any] = {
    **{b"\x1f\x8b": gzip.open, b"BZh": bz2.BZ2File, b"\xfd7zXZ": lzma.LZMAFile, b"]\0\0": lzma.LZMAFile}
}
_UNREADABLE = (
    OSError,
    EOFError,
    ValueError,
    RuntimeError,
    zlib.error,
    lzma.LZMAError,
    zipfile.BadZipFile,
    tarfile.TarError,
)
_HEAD = 1 << 20


class PickleError(GatehouseError):
    """A model's files hold a pickle, which runs code when it is loaded, and nobody allowed that."""

    permanent = True


def publish_files(store: ArtifactStore, model_name: str, path: str, allow_pickle: str = "") -> str:
    """Publish a model's file or folder as `models/<model_name>`; equal files are the same model.

    Raises PickleError if they hold a pickle, and `allow_pickle` does not say why; ConfigurationError without files.
    """
    with store.workspace() as folder:  # A copy: the store may link its files, and others may write to these.
        kept: dict[str, Path] = {}
        for name, file in files_of(path).items():
            kept[name] = folder / "files" / name
            kept[name].parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, kept[name])
        pickles = []
        for name, file in sorted(kept.items()):
            with open(file, "rb") as stream:
                pickles += [name] if holds_pickle(name, stream) else []
        if pickles and not allow_pickle.strip():
            raise PickleError(
                f"{model_name}: expected files that run no code when they are loaded, as safetensors, ONNX or JSON; "
                f"found pickles: {', '.join(pickles)}. Save the model in such a format, or say in allow_pickle why not."
            )
        details = {"external": True, "pickles": pickles}
        return str(store.publish("models", model_name, kept, details=details))


def tell(store: ArtifactStore, model: str, told: Mapping[str, str], settings: Mapping[str, Any]) -> None:
    """Add to what persons said of a model: texts by name, and the settings of its training."""
    before = next(iter(store.measurements(model, "train")), {})
    said = {"told": {**before.get("told", {}), **told}, "settings": {**before.get("settings", {}), **settings}}
    if not before or any(before[name] != said[name] for name in said):
        place = {"pod": os.environ.get("KFP_POD_NAME", "")}
        store.append(f"measurements/{model}", {"stage": "train", "place": place} | said)


def bound_evaluation(store: ArtifactStore, model_name: str, model: str, evaluation: str, source: str = "") -> str:
    """The evaluation of a model, from one of scores that may have been any model's; one of a model stays as it is.

    `source` is the folder that `judge` wrote, in place of a reference; it is copied to the store. Raises
    WrongEvaluationError if it judged other files, or is in the ledger as that of another model; ConfigurationError if
    there is no evaluation.
    """
    if source and not evaluation:
        folder = Path(source, "store")
        judged = list(ArtifactStore.open(folder).references("evaluations")) if folder.is_dir() else []
        if len(judged) != 1:
            raise ConfigurationError(f"evaluation: expected what judge wrote, found {len(judged)} evaluations in it.")
        evaluation = str(judged[0])
        pull(ArtifactStore.open(folder), evaluation, store)
    if not evaluation or Reference.parse(evaluation).kind != "evaluations":
        raise ConfigurationError(
            f"evaluation: expected what judge wrote, or its reference, found {evaluation or 'none'}."
        )
    manifest = store.manifest(evaluation)
    if "model" in manifest.derived_from:
        return evaluation
    files = {entry.path: [entry.sha256, entry.bytes] for entry in store.manifest(model).files}
    scored = manifest.details.get("files") or files
    # A file alone has the name that KFP gives it.
    named = len(files) > 1 or len(scored) > 1
    if (scored if named else [*scored.values()]) != (files if named else [*files.values()]):
        other = sorted(name for name in {*files, *scored} if files.get(name) != scored.get(name))
        raise WrongEvaluationError(
            f"{evaluation} judged other files than {model} has: {', '.join(other)}. Give judge and register_model the "
            "same model."
        )
    state = Ledger(store, model_name).state()
    if manifest.details.get("champion") == model and (last := state.last_verdict(model)):
        return last[1].evaluation  # The champion was made again, to the bit: its verdict stands.
    for _, verdict in state.verdicts:
        used = store.manifest(verdict.evaluation).derived_from.get("judged", "")
        if used == evaluation and verdict.subject.model != model:
            raise WrongEvaluationError(f"{evaluation} is that of {verdict.subject.model}, expected {model}.")
    inputs = {"model": model, "champion": str(manifest.details.get("champion", "")), "judged": evaluation}
    return str(
        store.publish(
            "evaluations",
            model_name,
            {entry.path: entry for entry in manifest.files},
            derived_from={role: origin for role, origin in (inputs | manifest.derived_from).items() if origin},
            configuration=manifest.configuration,
            details=manifest.details,
        )
    )


def holds_pickle(name: str, stream: IO[bytes]) -> bool:
    """Whether a file is or holds a pickle, by its name and its bytes, also in archives; nothing is unpickled."""
    head = stream.read(_HEAD)
    stream.seek(0)
    if name.lower().endswith(_PICKLED) or _is_pickle(stream):
        return True
    stream.seek(0)
    with suppress(*_UNREADABLE):
        if head.startswith(b"PK"):
            with zipfile.ZipFile(stream) as archive:
                return any(holds_pickle(member, archive.open(member)) for member in archive.namelist())
        if head[257:262] == b"ustar":
            with tarfile.open(fileobj=stream) as archived:
                members = ((member.name, archived.extractfile(member)) for member in archived)
                return any(holds_pickle(member, content) for member, content in members if content)
        for magic, unpacked in _COMPRESSED.items():
            if head.startswith(magic):
                return holds_pickle("", unpacked(stream))
        if head.startswith(b"x"):  # zlib, as joblib writes it.
            return holds_pickle("", io.BytesIO(zlib.decompressobj().decompress(head, _HEAD)))
    return head.startswith(b"\x93NUMPY") and b"O'" in head[:256]


def _is_pickle(stream: IO[bytes]) -> bool:
    """Whether bytes are a pickle that can run code: those of protocol 2 on up to the first call, older ones whole."""
    is_binary, calls = stream.read(1) == b"\x80", False
    stream.seek(0)
    try:
        for operation, _, _ in pickletools.genops(stream):
            calls = calls or operation.name in _CALLS
            if is_binary and (calls or "GLOBAL" in operation.name):
                return True
    except Exception:  # Other bytes are no pickle, however reading them fails.
        return False
    return is_binary or (calls and not stream.read(1).strip())
