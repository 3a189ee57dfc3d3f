"""Lists registered versions, and explains one: seven answers, history, numbers, and the lineage as a graph."""

from gatehouse.errors import ErasedArtifactError, MissingArtifactError
from gatehouse.metrics.catalogue import METRICS
from gatehouse.metrics.judging import objective_of
from gatehouse.registry.answers import Answer, provenance_of, seven_answers
from gatehouse.registry.ledger import Ledger, model_names
from gatehouse.registry.naming import named
from gatehouse.registry.state import Record
from gatehouse.reports.advice import advised
from gatehouse.store.reference import Reference
from gatehouse.store.stage import StageModel
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.provenance import lineage_of


class ExplainRequest(StageModel):
    """The version to explain, as NAME:2 or NAME@champion."""

    model: str


class Number(StageModel):
    """One number, and the bounds of its interval if there is one."""

    name: str
    value: float
    low: float | None = None
    high: float | None = None


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


class VersionSummary(StageModel):
    """A registered version, as a list shows it."""

    name: str
    version: int
    stage: str
    model: str
    by: str
    tags: dict[str, str]
    numbers: tuple[Number, ...]


class Explanation(StageModel):
    """All facts about a version."""

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

    Raises ConfigurationError if there is no such model or version; MissingArtifactError, CorruptArtifactError if a
    manifest of its lineage is missing or was altered.
    """
    chosen = named(store, request.model)
    ledger, version, state = chosen.ledger, chosen.version, chosen.ledger.state()
    last = state.last_verdict(version.model)
    nodes, edges = graph_of(store, version.model)
    acts = []
    for number, record in enumerate(ledger.records(), start=1):
        models = [record.verdict.subject.model] if record.verdict else []
        models += [record.exemption.model] if record.exemption else []
        if record.version == version.version or version.model in models:
            acts.append(act_of(number, record))
    return Explanation(
        name=ledger.model_name,
        version=version.version,
        stage=state.stage_of(version),
        model=version.model,
        evaluation=version.evaluation,
        verdict=last[1].summary if last else "",
        tags=dict(version.tags),
        numbers=numbers_of(store, version.evaluation),
        answers=seven_answers(store, version.model),
        acts=tuple(acts),
        nodes=nodes,
        edges=edges,
    )


def act_of(number: int, record: Record) -> Act:
    """A ledger record in words: what it did, and why, with what a person can do about a refusal."""
    if record.exemption:
        what = f"{Reference.parse(record.exemption.model).short} is {record.exemption}"
    elif record.kind == "refused" and record.verdict:
        what = f"{record.verdict.verdict} {Reference.parse(record.verdict.subject.model).short}"
    elif record.kind == "promoted":
        what = f"version {record.version} is {record.alias}{', gate overridden' if record.override else ''}"
    else:
        verbs = {"registered": "registered as", "rolled_back": "rolled back to", "withdrawn": "took back"}
        until = f" until {record.approval.until}" if record.approval and record.approval.until else ""
        tags = ", ".join(f"{name}={value}" for name, value in record.tags.items())
        what = f"{verbs.get(record.kind, record.kind)} version {record.version}{until}{f': {tags}' if tags else ''}"
    reasons = [*advised(record.verdict.reasons), *map(str, record.verdict.exempted)] if record.verdict else []
    return Act(
        number=number,
        at=str(record.provenance.get("at", "")),
        by=str(record.provenance.get("by", "")),
        what=what,
        reason="; ".join(filter(None, [*reasons, " ".join(record.reason.split())])),
    )


def numbers_of(store: ArtifactStore, evaluation: str) -> tuple[Number, ...]:
    """Every metric of the candidate on the whole test part, the objective first; empty if the evaluation is gone."""
    try:
        values = store.read_json(evaluation, "metrics.json")["candidate"]
    except (ErasedArtifactError, MissingArtifactError):
        return ()
    manifest, intervals = store.manifest(evaluation), {}
    objective = objective_of(str(manifest.details.get("task", "")))
    if manifest.entry("uncertainty.json") is not None:
        intervals = store.read_json(evaluation, "uncertainty.json")["intervals"].get("candidate", {})
    numbers = []
    for name in sorted(values, key=lambda name: name != objective):
        has_interval = name not in METRICS or METRICS[name].has_interval  # Earlier versions had other metrics.
        low, high = (intervals.get(name) if has_interval else None) or (None, None)
        numbers.append(Number(name=name, value=float(values[name]), low=low, high=high))
    return tuple(numbers)


def version_summaries(store: ArtifactStore, model_name: str = "") -> tuple[VersionSummary, ...]:
    """The versions of a model, or of all models for an empty name, the oldest first."""
    summaries = []
    for name in [model_name] if model_name else model_names(store):
        state = Ledger(store, name).state()
        for version in state.versions:
            summary = VersionSummary(
                name=name,
                version=version.version,
                stage=state.stage_of(version),
                model=version.model,
                by=str(provenance_of(store, version.model).get("by", "")),
                tags=dict(version.tags),
                numbers=numbers_of(store, version.evaluation),
            )
            summaries.append(summary)
    return tuple(summaries)


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
        Node(identity=identity, rows=manifest.rows, level=level(identity)) for identity, manifest in manifests.items()
    )
    edges = tuple(
        Edge(before=parent, after=identity, role=role)
        for identity, manifest in manifests.items()
        for role, parent in manifest.derived_from.items()
    )
    return nodes, edges
