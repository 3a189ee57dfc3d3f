"""Models that something else trained: their files, what a person says of them, and their evaluation."""

import io
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
_OPERATIONS = {operation.code.encode("latin-1"): operation for operation in pickletools.opcodes}
_LENGTHS = {-2: 1, -3: 4, -4: 4, -5: 8}
"""Bytes of the length of an argument, by the number that `pickletools` has for it."""
_CLOSED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"]\0\0", b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18", b"7z\xbc\xaf", b"Rar!")
"""How compressed files begin."""


class PickleError(GatehouseError):
    """A model's files hold a pickle, which runs code when it is loaded, and nobody allowed that."""

    permanent = True


def publish_files(store: ArtifactStore, model_name: str, path: str, pickle_reason: str = "") -> str:
    """Publish a model's file or folder as `models/<model_name>`; equal files are the same model.

    Raises PickleError if they hold a pickle, and `pickle_reason` does not say why; ConfigurationError without files.
    """
    with store.workspace() as folder:  # A copy: the store may link its files, and others may write to these.
        kept, pickles = {}, {}
        for name, file in files_of(path).items():
            kept[name] = folder / "files" / name
            kept[name].parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, kept[name])
            with open(kept[name], "rb") as stream:
                if reason := pickle_in(name, stream):
                    pickles[name] = reason
        if pickles and not pickle_reason.strip():
            raise PickleError(
                f"{model_name}: expected files that run no code when they are loaded, as safetensors, ONNX or JSON; "
                f"found {', '.join(f'{name} ({reason})' for name, reason in pickles.items())}. "
                "Save the model in such a format, or say in pickle_reason why not."
            )
        details = {"external": True, "pickles": [*pickles]}
        return str(store.publish("models", model_name, kept, details=details))


def record_statements(store: ArtifactStore, model: str, texts: Mapping[str, str], settings: Mapping[str, Any]) -> None:
    """Add to what persons said of a model: texts by name, and the settings of its training."""
    before = next(iter(store.measurements(model, "train")), {})
    body = {"statements": before.get("statements", {}) | texts, "settings": before.get("settings", {}) | settings}
    if not before or any(before[name] != body[name] for name in body):
        place = {"pod": os.environ.get("KFP_POD_NAME", "")}
        store.append(f"measurements/{model}", {"stage": "train", "place": place} | body)


def bound_evaluation(store: ArtifactStore, model_name: str, model: str, evaluation: str, source: str = "") -> str:
    """The evaluation of a model, from one of scores; one of a model stays as it is.

    `source` is the folder that `judge` wrote, in place of a reference; it is copied to the store. Raises
    WrongEvaluationError if it judged other files, or does not name them; ConfigurationError for both or neither.
    """
    if bool(source) == bool(evaluation):
        count = "both" if source else "neither"
        raise ConfigurationError(f"Expected evaluation, which judge wrote, or evaluation_reference; found {count}.")
    if source:
        folder = Path(source, "store")
        judged = list(ArtifactStore.open(folder).references("evaluations")) if folder.is_dir() else []
        if len(judged) != 1:
            raise ConfigurationError(f"evaluation: expected what judge wrote, found {len(judged)} evaluations in it.")
        evaluation = str(judged[0])
        pull(ArtifactStore.open(folder), evaluation, store)
    if Reference.parse(evaluation).kind != "evaluations":
        raise ConfigurationError(f"evaluation: expected what judge wrote, or its reference, found {evaluation}.")
    manifest = store.manifest(evaluation)
    if "model" in manifest.derived_from:
        return evaluation
    files = {entry.path: [entry.sha256, entry.bytes] for entry in store.manifest(model).files}
    if not (scored := manifest.details.get("files")):
        raise WrongEvaluationError(f"{evaluation} names no files. Judge with model=…, so that it is about these files.")
    named = len(files) > 1 or len(scored) > 1  # A file alone has the name that KFP gives it.
    if (scored if named else [*scored.values()]) != (files if named else [*files.values()]):
        other = sorted(name for name in {*files, *scored} if files.get(name) != scored.get(name))
        raise WrongEvaluationError(
            f"{evaluation} judged other files than {model} has: {', '.join(other)}. Give judge the same model."
        )
    champion = manifest.details.get("champion", "")
    if champion == model and (last := Ledger(store, model_name).state().last_verdict(model)):
        return last[1].evaluation  # The champion was made again, to the bit: its verdict stands.
    inputs = {"model": model, "judged": evaluation, **manifest.derived_from}
    inputs |= {"champion": champion} if champion else {}
    contents, settings = {entry.path: entry for entry in manifest.files}, manifest.configuration
    published = store.publish(
        "evaluations", model_name, contents, derived_from=inputs, configuration=settings, details=manifest.details
    )
    return str(published)


def pickle_in(name: str, stream: IO[bytes], is_member: bool = False) -> str:
    """Why loading a file may run code: it is or holds a pickle, or cannot be looked into; empty if neither.

    Its name and bytes say so, also in a zip. Nothing is unpickled, and of a NumPy array only the header is read.
    """
    from numpy.lib import format as arrays

    try:
        if name.lower().endswith(_PICKLED) or _is_pickle(stream):
            return "pickle"
        stream.seek(0)
        head = stream.read(512)
        stream.seek(0)
        if head.startswith(b"\x93NUMPY"):
            read = {(1, 0): arrays.read_array_header_1_0}.get(arrays.read_magic(stream), arrays.read_array_header_2_0)
            return "array of pickles" if read(stream)[2].hasobject else ""
        if head.startswith(_CLOSED) or (head.strip(b"\0") and tarfile.is_tarfile(stream)):
            return "archive other than zip: unpack it"
        stream.seek(0)
        if zipfile.is_zipfile(stream):
            with zipfile.ZipFile(stream) as archive:
                for member in archive.infolist():  # Several may have one name.
                    reason = "in an archive" if is_member else pickle_in(member.filename, archive.open(member), True)
                    if reason:
                        return f"{member.filename}: {reason}"
        with suppress(zlib.error):
            return "compressed as joblib does" if head[:1] == b"x" and zlib.decompressobj().decompress(head) else ""
    except Exception as error:  # Another program may read what fails here, however it fails.
        return f"cannot be read, {type(error).__name__}: {error}"
    return ""


def _is_pickle(stream: IO[bytes]) -> bool:
    """Whether bytes can run code as a pickle: one of protocol 2 on, or an older one that calls what it imports.

    Arguments are skipped, as Python's unpickler takes some that `pickletools.genops` refuses.
    """
    stack, mark = "", pickletools.markobject
    is_binary = imports = False
    while (operation := _OPERATIONS.get(stream.read(1))) is not None:
        name, before, has_mark = operation.name, operation.stack_before, "("
        if mark in before:
            stack, has_mark, _ = stack.rpartition("(")
        below = len(stack) - (before.index(mark) if mark in before else len(before))
        if below < 0 or not has_mark:
            return False
        is_binary = is_binary or (name == "PROTO" and not stack)
        imports = imports or "GLOBAL" in name or name.startswith(("EXT", "INST"))
        if (is_binary and (imports or name == "STOP")) or (imports and name in _CALLS):
            return True
        stack = stack[:below] + "".join("(" if kind is mark else "." for kind in operation.stack_after)
        length = operation.arg.n if operation.arg else 0
        if length == pickletools.UP_TO_NEWLINE:
            for _ in range(2 if name == "GLOBAL" else 1):
                stream.readline()
        else:
            length = int.from_bytes(stream.read(_LENGTHS[length]), "little") if length < 0 else length
            stream.seek(min(length, 1 << 40), io.SEEK_CUR)
    return False
