"""Tells a server of OpenLineage what a run read and made: a job for each stage, within a job for the pipeline.

The events are made from the run's record and from the manifests of what its stages gave, when the run has ended, with
the times at which stages began and ended. The client of OpenLineage reads where to send them from its own settings.
"""

import os
import uuid
from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from gatehouse.errors import GatehouseError
from gatehouse.operations.notice import Delivery
from gatehouse.runtime.redaction import error_text, public_address, redacted
from gatehouse.store.manifest import Manifest
from gatehouse.store.reference import Reference, references_in
from gatehouse.store.run import REPORT, end_of, events
from gatehouse.store.store import ArtifactStore

if TYPE_CHECKING:
    from openlineage.client.event_v2 import RunEvent

_SETTINGS = ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG", "OPENLINEAGE__TRANSPORT__TYPE")
_PRODUCER = "https://pypi.org/project/gatehouse"
_ENDS = dict.fromkeys(("finished", "hit", "succeeded"), "COMPLETE") | dict.fromkeys(("failed", "tolerated"), "FAIL")
_ENDS |= {"stopped": "ABORT"}
"""OpenLineage's words for the ends of stages and runs."""


def is_wanted() -> bool:
    """Whether a setting of the client says where to send events."""
    return any(os.environ.get(name) for name in _SETTINGS)


def send(store: ArtifactStore, run: str) -> Delivery:
    """Send the events of a run that has ended; a repeat sends the same ones, about the same runs."""
    try:
        from openlineage.client import OpenLineageClient
    except ImportError:
        return Delivery(False, 0, "of OpenLineage needs the package openlineage-python: install gatehouse[lineage]")
    try:
        client = OpenLineageClient()
        for event in lineage_of(store, run):
            client.emit(event)
        client.close()
    except Exception as error:  # Whichever transport it has raises its own.
        return Delivery(False, 1, f"of OpenLineage did not take the lineage of the run: {error_text(error)}")
    return Delivery(True, 1, "of OpenLineage took the lineage of the run")


def lineage_of(store: ArtifactStore, run: str) -> "Iterator[RunEvent]":
    """Start and end of a run, and between them those of each attempt at its stages, with what they read and made.

    A dataset is an artifact without its digest, which is the dataset's version; its namespace is the store.
    """
    from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
    from openlineage.client.facet_v2 import dataset_version_dataset, error_message_run, parent_run, schema_dataset

    end = end_of(store, run) or {}
    address = public_address(store.address) if "://" in store.address else f"file://{store.address}"
    pipeline, manifests = f"{end['project']}.{end['pipeline']}", dict[Reference, Manifest | None]()
    parent = parent_run.ParentRunFacet(parent_run.Run(_uuid(run)), parent_run.Job(address, pipeline))

    def manifest(reference: Reference) -> Manifest | None:
        if reference not in manifests:
            try:
                manifests[reference] = store.manifest(reference)
            except GatehouseError:  # It was erased or collected.
                manifests[reference] = None
        return manifests[reference]

    def dataset(reference: Reference) -> dict[str, Any]:
        facets: dict[str, Any] = {"version": dataset_version_dataset.DatasetVersionDatasetFacet(reference.digest)}
        if (known := manifest(reference)) and known.columns:
            fields = [schema_dataset.SchemaDatasetFacetFields(column.name, column.type) for column in known.columns]
            facets["schema"] = schema_dataset.SchemaDatasetFacet(fields)
        return {"namespace": address, "name": f"{reference.kind}/{reference.name}", "facets": facets}

    def event(kind: str, at: float, stage: str, outputs: Collection[Reference] = (), why: str = "") -> RunEvent:
        facets: dict[str, Any] = {"parent": parent} if stage else {}
        if kind == "FAIL":
            facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(redacted(why), "python")
        origins = {origin for output in outputs if (made := manifest(output)) for origin in made.derived_from.values()}
        inputs = sorted(set(map(Reference.parse, origins)) - set(outputs))
        return RunEvent(
            eventTime=datetime.fromtimestamp(at, UTC).isoformat(),
            producer=_PRODUCER,
            eventType=RunState[kind],
            run=Run(_uuid(f"{run}/{stage}" if stage else run), facets),
            job=Job(address, f"{pipeline}.{stage}" if stage else pipeline),
            inputs=[InputDataset(**dataset(reference)) for reference in inputs],
            outputs=[OutputDataset(**dataset(reference)) for reference in sorted(outputs)],
        )

    record = sorted((event for _, event in events(store, run)), key=lambda event: float(event.body["at"]))
    tasks = [entry for entry in record if ":" not in entry.stage and entry.stage != REPORT]
    ended = float(end.get("ended") or end["recorded"])
    yield event("START", float(end.get("began") or ended), "")
    made: set[Reference] = set()
    for entry in tasks:
        outputs, at = set(references_in(entry.body.get("result", {}))), float(entry.body["at"])
        stage = f"{entry.stage}.{entry.attempt}" if entry.attempt > 1 else entry.stage
        if entry.event == "started":
            yield event("START", at, stage)
        elif entry.event in _ENDS:
            yield event(_ENDS[entry.event], at, stage, outputs, str(entry.body.get("message", "")))
            made |= outputs
    yield event(_ENDS.get(str(end["state"]), "ABORT"), ended, "", made, str(end.get("message", "")))


def _uuid(name: str) -> str:
    """The id of a run there, which has to be a UUID: the same for the same name."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"urn:gatehouse:{name}"))
