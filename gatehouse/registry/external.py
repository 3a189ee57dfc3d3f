"""Models that something else trained: their files, what a person says of them, and their evaluation."""

import codecs
import io
import json
import os
import re
import shutil
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from gatehouse.errors import ConfigurationError, GatehouseError
from gatehouse.registry.ledger import Ledger
from gatehouse.registry.registration import WrongEvaluationError, differing
from gatehouse.store.publishing import files_of
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore
from gatehouse.store.transfer import pull

_PICKLED = (".pkl", ".pickle", ".joblib", ".dill", ".pt", ".pth")
_TEXTS = ("", ".txt", ".md", ".json", ".jsonl", ".yaml", ".yml", ".csv", ".tsv", ".jinja", ".pmml")
_READ = ("LICENSE", "NOTICE", "README")
"""Suffixes of texts, and names of texts that people read."""
_FIRST = {".onnx": b"\x08", ".model": b"\n", ".spm": b"\n"}
"""By name, the first byte of ONNX, and of SentencePiece; no pickle begins so."""
_DATA = re.compile(rb"GGUF[\1-\3]\0\0\0|\{(i.|U.|I..|l.{4}|L.{8})[ -z]", re.DOTALL)
"""How GGUF begins, or an object of UBJSON."""
_BINARY = re.compile(rb"[\0-\x08\x0b\x0e-\x1f\x7f]")
_PROGRAM = re.compile(rb"\A#!|^import \w|^from [\w.]+ import |^def \w+\(", re.MULTILINE)
_OPENS, _IMPORTS = b"BCFGIJKLMNSTUVXc()]}", re.compile(rb"[ci]\w[\w.]*\n\w[\w.]*\n")
"""How a pickle of text begins, and how it imports what it calls."""


class PickleError(GatehouseError):
    """A model's files hold a pickle, or what else may run code when it is loaded, and nobody allowed that."""

    permanent = True


def publish_files(store: ArtifactStore, model_name: str, path: str, pickle_reason: str = "") -> str:
    """Publish a model's file or folder as `models/<model_name>`; equal files are the same model.

    Raises PickleError if one may run code when it is loaded, as a pickle does, and `pickle_reason` does not say why;
    ConfigurationError without files.
    """
    with store.workspace() as folder:  # A copy: the store may link its files, and others may write to these.
        kept, pickles = {}, {}
        for name, file in files_of(path).items():
            kept[name] = folder / "files" / name
            kept[name].parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, kept[name])
            with open(kept[name], "rb") as stream:
                if doubt := doubt_of(name, stream):
                    pickles[name] = doubt
        if pickles and not pickle_reason.strip():
            raise PickleError(
                f"{model_name}: expected files that run no code when they are loaded: safetensors, GGUF, ONNX, UBJSON, "
                "JSON, text, NumPy, Parquet, Arrow, SentencePiece, or a zip of these; found "
                f"{', '.join(f'{name} ({doubt})' for name, doubt in pickles.items())}. Save the model in such a "
                "format, or say in pickle_reason why these may be loaded."
            )
        details = {"external": True, "pickles": [*pickles]}
        return str(store.publish("models", model_name, kept, details=details))


def warnings_of_files(path: str | Path) -> list[str]:
    """A warning for each file of a model that the registry refuses without a reason."""
    warnings = []
    for name, file in files_of(path).items():
        with open(file, "rb") as stream:
            if doubt := doubt_of(name, stream):
                warnings.append(
                    f"{name} ({doubt}) may run code when it is loaded: register needs a pickle_reason for it"
                )
    return warnings


def record_statements(store: ArtifactStore, model: str, texts: Mapping[str, str], settings: Mapping[str, Any]) -> None:
    """Add to what persons said of a model: texts by name, and the settings of its training."""
    before = next(iter(store.measurements(model, "train")), {})
    body = {"statements": before.get("statements", {}) | texts, "settings": before.get("settings", {}) | settings}
    if not before or any(before[name] != body[name] for name in body):
        place = {"pod": os.environ.get("KFP_POD_NAME", "")}
        store.append(f"measurements/{model}", {"stage": "train", "place": place} | body)


def bound_evaluation(store: ArtifactStore, model_name: str, model: str, evaluation: str, source: str = "") -> str:
    """The evaluation of a model, from one of scores; one of a model stays as it is.

    `source` is the folder that `evaluate` wrote, in place of a reference; it is copied to the store. Raises
    WrongEvaluationError if it judged other files, or does not name them; ConfigurationError if it is no evaluation.
    """
    if source:
        folder = Path(source, "store")
        judged = list(ArtifactStore.open(folder).references("evaluations")) if folder.is_dir() else []
        if len(judged) != 1:
            raise ConfigurationError(
                f"evaluation: expected what evaluate wrote, found {len(judged)} evaluations in it."
            )
        evaluation = str(judged[0])
        pull(ArtifactStore.open(folder), evaluation, store)
    if Reference.parse(evaluation).kind != "evaluations":
        raise ConfigurationError(f"evaluation: expected what evaluate wrote, found {evaluation}.")
    manifest = store.manifest(evaluation)
    if "model" in manifest.derived_from:
        return evaluation
    files = {entry.path: [entry.sha256, entry.bytes] for entry in store.manifest(model).files}
    if not (scored := manifest.details.get("files")):
        raise WrongEvaluationError(
            f"{evaluation} names no files. Evaluate with model=…, so that it is about these files."
        )
    named = len(files) > 1 or len(scored) > 1  # A file alone has the name that KFP gives it.
    if (scored if named else [*scored.values()]) != (files if named else [*files.values()]):
        raise WrongEvaluationError(
            f"{evaluation} judged other files than {model} has: {differing(files, scored)}. Give evaluate the same."
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


def doubt_of(name: str, stream: IO[bytes], is_member: bool = False) -> str:
    """Why loading a file may run code: what it is, unless its bytes show a format of data alone; empty if they do.

    Nothing is unpickled, of a NumPy array only the header is read, and a zip is as its members.
    """
    from numpy.lib import format as arrays

    suffix = ".txt" if Path(name).name.startswith(_READ) else Path(name).suffix.lower()
    try:
        head, size = stream.read(32), stream.seek(0, io.SEEK_END)
        stream.seek(max(size - 8, 0))
        end, length = stream.read(), int.from_bytes(head[:8], "little")
        stream.seek(0)
        if suffix in _PICKLED:
            return "pickle"
        if head.startswith(b"\x93NUMPY"):
            read = {(1, 0): arrays.read_array_header_1_0}.get(arrays.read_magic(stream), arrays.read_array_header_2_0)
            return "array of pickles" if read(stream)[2].hasobject else ""
        if head.startswith(b"PK\3\4") and not is_member:
            with zipfile.ZipFile(stream) as archive:
                members = archive.infolist()  # Several may have one name.
                doubts = ((entry.filename, doubt_of(entry.filename, archive.open(entry), True)) for entry in members)
                return next((f"{member}: {doubt}" for member, doubt in doubts if doubt), "")
        framed = any(head.startswith(mark) and end.endswith(mark) for mark in (b"PAR1", b"ARROW1"))
        if framed or _DATA.match(head) or head[:1] == _FIRST.get(suffix):
            return ""
        if head[8:9] == b"{" and length <= min(size - 8, 100 << 20):  # Safetensors has no longer header.
            stream.seek(8)
            json.loads(stream.read(length))
            return ""
        before, decode = b"", codecs.getincrementaldecoder("utf-8")().decode
        with suppress(UnicodeDecodeError):
            while suffix in _TEXTS and not _BINARY.search(chunk := stream.read(1 << 20)):
                decode(chunk, not chunk)
                if not chunk:
                    return ""
                text, before = before[-200:] + chunk, chunk
                is_pickle = head[:1] in _OPENS and _IMPORTS.search(text)
                if b"!!python/" in text or (not suffix and (is_pickle or _PROGRAM.search(text))):
                    return "text that may be code"
        return "pickle" if head[:1] == b"\x80" else f"begins with {head[:8]!r}"
    except Exception as error:  # Another program may read what fails here, however it fails.
        return f"cannot be read, {type(error).__name__}: {error}"
