"""Explains a registered version: the seven answers, its history, its numbers, and its lineage as a graph."""

from gatehouse.registry.explaining.answers import Answer, seven_answers
from gatehouse.registry.explaining.numbers import Number, numbers_of
from gatehouse.registry.ledger import Ledger
from gatehouse.registry.naming import named
from gatehouse.registry.state import ModelVersion, Record
from gatehouse.reports.advice import advised
from gatehouse.store.reference import Reference
from gatehouse.store.stage import StageModel
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.provenance import lineage_of


class ExplainRequest(StageModel):
    """The version to explain, as NAME:2 or NAME@champion."""

    model: str


class Node(StageModel):
    """One artifact of a lineage, its row count if it is a table, and its distance from the sources, from 0."""

    identity: str
    rows: int | None
    level: int


class Edge(StageModel):
    """`after` was derived from `before`, which is its `role`."""

    before: str
    after: str
    role: str


class Act(StageModel):
    """An event in a version's history: the ledger record, when, by whom, and why."""

    number: int
    at: str
    by: str
    what: str
    reason: str


class Explanation(StageModel):
    """All that is known of a version."""

    name: str
    version: int
    stage: str
    model: str
    evaluation: str
    verdict: str
    tags: dict[str, str]
    numbers: tuple[Number, ...]
    answers: tuple[Answer, ...]
    acts: tuple[Act, ...]
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]


def explain(request: ExplainRequest, store: ArtifactStore) -> Explanation:
    """Explain a version.

    Raises:
        ConfigurationError: if there is no such model or version.
        MissingArtifactError, CorruptArtifactError: if a manifest of its lineage is missing or was altered.
    """
    found = named(store, request.model)
    version, state = found.version, found.ledger.state()
    last = state.last_verdict(version.model)
    nodes, edges = graph_of(store, version.model)
    return Explanation(
        name=found.ledger.model_name,
        version=version.version,
        stage=state.stage_of(version),
        model=version.model,
        evaluation=version.evaluation,
        verdict=last[1].told if last else "",
        tags=dict(version.tags),
        numbers=numbers_of(store, version.evaluation),
        answers=seven_answers(store, version.model),
        acts=acts_on(found.ledger, version),
        nodes=nodes,
        edges=edges,
    )


def acts_on(ledger: Ledger, version: ModelVersion) -> tuple[Act, ...]:
    """The ledger's records about a version, in order."""
    numbered = list(enumerate(ledger.records(), start=1))
    return tuple(
        Act(
            number=number,
            at=str(record.provenance.get("at", "")),
            by=str(record.provenance.get("by", "")),
            what=said(record),
            reason=why(record),
        )
        for number, record in numbered
        if record.version == version.version or version.model in _models(record)
    )


def _models(record: Record) -> set[str]:
    """The models in records that name a model and no version."""
    about = [record.verdict.subject.model] if record.verdict else []
    return {*about, *([record.exemption.model] if record.exemption else [])}


def said(record: Record) -> str:
    """What a record did, in words."""
    if record.exemption:
        return f"{Reference.parse(record.exemption.model).short} is {record.exemption}"
    if record.kind == "refused" and record.verdict:
        return f"{record.verdict.verdict} {Reference.parse(record.verdict.subject.model).short}"
    if record.kind == "promoted":
        return f"version {record.version} is {record.alias}{', gate overridden' if record.override else ''}"
    words = {"registered": "registered as", "rolled_back": "rolled back to", "withdrawn": "took back"}
    tags = ", ".join(f"{name}={value}" for name, value in record.tags.items())
    until = f" until {record.approval.until}" if record.approval and record.approval.until else ""
    return f"{words.get(record.kind, record.kind)} version {record.version}{until}{f': {tags}' if tags else ''}"


def why(record: Record) -> str:
    """Why a record was made: what the gate said, with what a person can do about it, and the reason that was given."""
    heard = [*advised(record.verdict.reasons), *map(str, record.verdict.exempted)] if record.verdict else []
    return "; ".join([*heard, *filter(None, [" ".join(record.reason.split())])])


def graph_of(store: ArtifactStore, reference: str) -> tuple[tuple[Node, ...], tuple[Edge, ...]]:
    """An artifact and all artifacts it was derived from, with row counts, and the derivations between them."""
    manifests = {identity: store.manifest(identity) for identity in (*lineage_of(store, reference), reference)}
    levels: dict[str, int] = {}

    def level(identity: str) -> int:
        if identity not in levels:
            parents = manifests[identity].derived_from.values()
            levels[identity] = 1 + max((level(parent) for parent in parents), default=-1)
        return levels[identity]

    nodes = tuple(
        Node(identity=identity, rows=each.rows, level=level(identity)) for identity, each in manifests.items()
    )
    edges = tuple(
        Edge(before=parent, after=identity, role=role)
        for identity, each in manifests.items()
        for role, parent in each.derived_from.items()
    )
    return nodes, edges
