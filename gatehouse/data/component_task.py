"""The task of a component: it takes the artifacts that KFP brings, runs stages in a store, and gives artifacts to KFP.

An artifact of a store travels through KFP as its manifest, a file of kilobytes, with its address in the metadata as
`reference`. Every other artifact is a file that anything may have written: a table in Parquet, CSV or JSON lines.
"""

import atexit
import json
import os
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from gatehouse.data.datasets import Types, read_dataset, write_dataset
from gatehouse.data.splitting.publication import publish_rows, restored
from gatehouse.errors import ConfigurationError
from gatehouse.pieces.driving import driving
from gatehouse.pieces.engine import engine_of
from gatehouse.reports.contents import write_page
from gatehouse.runtime.variables import ENGINE
from gatehouse.store.canonical import canonical_json
from gatehouse.store.parameters import as_written, checked, nonces_of
from gatehouse.store.reference import Reference
from gatehouse.store.run import LAST_STAGE, RUN_ID, rerun_of, run_id
from gatehouse.store.stage import Req, Res, Stage
from gatehouse.store.store import ArtifactStore
from gatehouse.store.transfer import export

REFERENCE = "reference"
"""The key of an artifact's metadata that holds its address."""
NOTHING = "none"
"""The address where a component had nothing to give, such as the champion of a model without one."""


class ComponentTask:
    """One task: its store, and the run that it belongs to.

    Attributes:
        store: The artifact store.
        kept: Whether the store outlives the task; else references end with it, and only files remain.
    """

    def __init__(
        self,
        store: str,
        *artifacts: Any,
        unfinished: Path | None = None,
        engine: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """Open the store at the address `store`, by default that of the artifacts.

        Without any the store is temporary. It is in the folder `unfinished`, so that the next attempt of the task finds
        it, or ends with the process. `engine` says where the pieces of stages run; empty for what the environment says.

        Raises ConfigurationError if the artifacts are in several stores, and no address says which one.
        """
        os.environ[RUN_ID] = run_id()
        if engine:
            os.environ[ENGINE] = canonical_json(dict(engine))
            engine_of(os.environ[ENGINE], "engine")
        known = {address for address in map(_address_of, artifacts) if address and address != NOTHING}
        addresses = set() if store else set(map(_store_of, known))
        if len(addresses) > 1:
            raise ConfigurationError(
                f"store: expected artifacts of one store, found {', '.join(sorted(addresses))}. Copy them into one "
                "with `gatehouse data pull`, and give its address as `store`."
            )
        address = store or "".join(addresses)
        self.kept = bool(address)
        if not address and unfinished is None:
            folder = tempfile.TemporaryDirectory(prefix="gatehouse-store-")
            atexit.register(folder.cleanup)
            address = folder.name
        self.store = ArtifactStore.open(address or str(unfinished))

    def find(self, artifact: Any, *kinds: str) -> str:
        """The reference of an artifact of a store; empty if there is no artifact, or it is of none of these kinds."""
        address = _address_of(artifact)
        reference = Reference.parse(address) if address and address != NOTHING else None
        return str(reference) if reference and (not kinds or reference.kind in kinds) else ""

    def is_nothing(self, artifact: Any) -> bool:
        """Whether an input got no artifact, or one of a component that had nothing to give."""
        return artifact is None or _address_of(artifact) == NOTHING

    def take(self, name: str, artifact: Any, *kinds: str) -> str:
        """The reference of the artifact that the input `name` got; empty if it got none.

        Raises ConfigurationError if the artifact is of another kind, or of no store.
        """
        if self.is_nothing(artifact):
            return ""
        address = _address_of(artifact)
        if not address or (kinds and Reference.parse(address).kind not in kinds):
            what = f"{' or '.join(kinds)} of an artifact store" if kinds else "an artifact of a store"
            raise ConfigurationError(
                f"{name}: expected {what}, found {address or 'a file without a reference'}. Give the output of the "
                "component that makes it, and give that one a `store`."
            )
        return str(Reference.parse(address))

    def origin(self, reference: str, role: str) -> str:
        """The reference of the artifact that another one was made from.

        Raises ConfigurationError if it was made without one.
        """
        inputs = self.store.manifest(reference).derived_from
        if role not in inputs:
            made_from = ", ".join(inputs) or "nothing"
            raise ConfigurationError(
                f"{reference}: expected an artifact that was made from a {role.replace('_', ' ')}, found {made_from}."
            )
        return inputs[role]

    def table(self, artifact: Any, format: str = "", types: Types | None = None) -> pa.Table:
        """All rows of an artifact: of a store's tables in Parquet, else of its file, as `read_dataset` reads it."""
        if reference := self.find(artifact):
            part = artifact.metadata.get("part")
            return self.part(reference, part) if part else self.rows(reference)
        return read_dataset(artifact.path, format, types)

    def published(self, artifact: Any, format: str = "") -> str:
        """The reference of an artifact's rows, which are published first if no store holds them."""
        reference = self.find(artifact)
        if reference and not artifact.metadata.get("part") and Reference.parse(reference).kind != "snapshots":
            return reference
        return str(publish_rows(self.store, "tables", "rows", self.table(artifact, format), {}, {}))

    def rows(self, reference: str) -> pa.Table:
        """All rows of an artifact of the store, a snapshot of one table among them.

        Raises ConfigurationError if it has none.
        """
        manifest = self.store.manifest(reference)
        parquet = [entry.path for entry in manifest.files if entry.path.endswith(".parquet")]
        if manifest.reference.kind == "snapshots" and len(manifest.derived_from) == 1:
            return self.rows(*manifest.derived_from.values())
        if not parquet or manifest.reference.kind == "splits":
            raise ConfigurationError(
                f"Expected one table, found {reference}, which has {len(manifest.derived_from)} parts and no rows of "
                "its own. Give one of the tables that it was made from."
            )
        rows = pa.concat_tables(pq.read_table(self.store.path(reference, path)) for path in parquet)
        return restored(rows, manifest.details)

    def part(self, split: str, name: str) -> pa.Table:
        """The rows of one part of a split: train, validation or test."""
        rows = self.rows(self.store.manifest(split).derived_from["training_set"])
        return rows.take(pq.read_table(self.store.path(split, f"{name}.parquet"))["row"])

    def run(self, stage: Stage[Req, Res], **fields: Any) -> Res:
        """Run a stage; `rerun` of the run says which stages run whatever the memo holds.

        Raises ConfigurationError with every problem of the fields, and as the stage raises.
        """
        request = checked(stage.name, stage.request, as_written(fields))
        force = nonces_of(rerun_of(self.store, run_id())).get(stage.name, "")
        if "force" in type(request).model_fields:  # `snapshot` uses it itself.
            request = request.model_copy(update={"force": force})
        with driving():
            result = stage(request, self.store, force=force)
        if os.environ.get(LAST_STAGE) == stage.name:
            raise SystemExit(0)
        return result

    def give(
        self,
        output: Any,
        reference: str,
        facts: Mapping[str, str] = MappingProxyType({}),
        *,
        tables: bool = False,
        part: str = "",
    ) -> str:
        """Write an artifact of the store to an output of KFP: its manifest, or with `tables` its files.

        Where nobody can follow a reference, as the store is temporary, the files are written too.

        Args:
            facts: More texts for the metadata.
            part: Of a split, the part that is given.

        Returns:
            The address; empty if the store is temporary, or there is no reference.
        """
        output.metadata.update({**facts, **({"part": part} if part else {})})
        path = Path(output.path)
        path.parent.mkdir(parents=True, exist_ok=True)
        if not reference:
            output.metadata[REFERENCE] = NOTHING
            path.touch()
            return ""
        self.label(reference, output)
        if self.kept and not tables:
            path.write_text(self.store.manifest(reference).to_json(), encoding="utf-8")
        elif "Dataset" in output.schema_title:
            write_dataset(self.part(reference, part) if part else self.rows(reference), path)
        else:
            path.mkdir(exist_ok=True)
            export(self.store, reference, path)
        return self.address(reference)

    def show(self, output: Any, reference: str) -> None:
        """Write the page of an artifact to an output for HTML."""
        write_page(self.store, reference, output.path)
        self.label(reference, output)

    def address(self, reference: str) -> str:
        """The address of an artifact; empty if the store is temporary, or there is no reference."""
        return self.store.address_of(reference) if self.kept and reference else ""

    def label(self, reference: str, *outputs: Any) -> None:
        """Note in the metadata of outputs which artifact of the store they show."""
        for output in outputs:
            output.metadata.pop(REFERENCE, None)
            if address := self.address(reference):
                output.metadata[REFERENCE] = address

    def verdict(self, name: str, artifact: Any, *kinds: str) -> dict[str, Any]:
        """The verdict that an artifact carries, with its reasons and its reference, as the stages `require…` take it.

        An input that got no artifact asks for none: its verdict is pass.
        """
        if artifact is None:
            return {"verdict": "pass"}
        verdict, reasons = artifact.metadata.get("verdict"), artifact.metadata.get("reasons", "[]")
        reference = self.find(artifact, *kinds)
        if not verdict and reference:
            only_if_right = Reference.parse(reference).kind == "splits"
            verdict = "pass" if only_if_right else self.store.manifest(reference).details.get("verdict")
        return {
            "verdict": verdict or "not checked",
            "reasons": json.loads(reasons),
            "report": reference,
            "subject": name,
        }


def local_files(artifact: Any, folder: Path) -> Path | None:
    """The path of an artifact's own files: rows as Parquet, or a folder, where KFP carries only its manifest.

    These are written to `folder`. None if there is no artifact.
    """
    task = ComponentTask("", artifact) if _address_of(artifact) not in ("", NOTHING) else None
    if artifact is None or task is None:
        return artifact and Path(artifact.path)
    reference, part = task.find(artifact), artifact.metadata.get("part", "")
    path, manifest = Path(artifact.path), task.store.manifest(reference)
    if path.is_dir() or path.read_text(encoding="utf-8", errors="replace") != manifest.to_json():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    if part or "Dataset" in artifact.schema_title:
        write_dataset(task.part(reference, part) if part else task.rows(reference), folder / "rows.parquet")
        return folder / "rows.parquet"
    export(task.store, reference, folder)
    return folder


def verdict_facts(verdict: str, reasons: Collection[str]) -> dict[str, str]:
    """A verdict and its reasons as texts of an artifact's metadata, for `ComponentTask.verdict` of the next task."""
    return {"verdict": verdict, "reasons": canonical_json(list(reasons))}


def _address_of(artifact: Any) -> str:
    """The address of an artifact of a store: in its metadata, or as the address that an importer has."""
    if artifact is None:
        return ""
    address = artifact.metadata.get(REFERENCE) or artifact.uri or ""
    if "/sha256-" not in address and REFERENCE not in artifact.metadata:
        return ""
    return str(address).removesuffix("/manifest.json")


def _store_of(address: str) -> str:
    store = address.removesuffix(str(Reference.parse(address))).rstrip("/")
    if not store:
        raise ConfigurationError(f"store: expected the address of an artifact store for {address}, found none.")
    return store
