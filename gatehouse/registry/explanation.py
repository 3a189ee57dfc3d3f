"""Lists versions, explains one, and compares two: seven answers, history, numbers, and the lineage as a graph.

The answers come from manifests, provenance and the measurement of the training. A model of Gatehouse's training that
cannot answer one of the questions is not registered, because it could not be explained or rebuilt. For a model that
something else trained, a person answers, and what nobody said is *not stated*.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gatehouse.errors import ErasedArtifactError, GatehouseError, MissingArtifactError
from gatehouse.metrics.catalogue import METRICS
from gatehouse.metrics.judging import objective_of
from gatehouse.registry.ledger import Record
from gatehouse.registry.naming import named
from gatehouse.reports.advice import advised
from gatehouse.store.records import changes, flat, read_record
from gatehouse.store.reference import Reference
from gatehouse.store.stage import StageModel
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.provenance import lineage_of

NOT_STATED = "not stated"


class IncompleteLineageError(GatehouseError):
    """A model cannot say what it was made from, how, where or by whom."""

    permanent = True


class Answer(StageModel):
    """One question, the facts that answer it, and what is missing; `missing` is empty if it is answered."""

    question: str
    facts: tuple[tuple[str, str], ...] = ()
    missing: str = ""


def seven_answers(store: ArtifactStore, model: str) -> tuple[Answer, ...]:
    """The model's answers to the seven questions. Raises if a manifest of its lineage is missing or altered."""
    if store.manifest(model).details.get("external"):
        return _stated_answers(store, model)
    origin, settings = provenance_of(store, model), flat(settings_of(store, model))
    environment: dict[str, Any] = training_of(store, model).get("environment") or {}

    data: list[tuple[str, str]] = []
    for identity in lineage_of(store, model):
        kind = Reference.parse(identity).kind
        if kind in ("snapshots", "datasets", "training-sets", "splits"):
            rows = store.manifest(identity).rows
            data.append((kind.removesuffix("s"), identity if rows is None else f"{identity} ({rows:,} rows)"))
    absent = [kind for kind in ("snapshot", "training-set", "split") if kind not in dict(data)]

    commit = f"{environment.get('commit', '')}{'+dirty' if environment.get('dirty') else ''}"
    code = {"code": origin.get("code"), "own code": origin.get("outside"), "commit": commit, "key": origin.get("key")}

    machine = {name: environment.get(name) for name in ("image", "machine", "hardware", "python")}
    machine["image"] = machine["image"] or "none: it ran outside of a container"
    machine |= {f"threads {name}": count for name, count in (environment.get("threads") or {}).items()}
    # What the environment lists always, and what the code of the training imports.
    code_record = read_record(store.objects, f"code/{origin.get('code')}.json") or {}
    machine |= dict(environment.get("distributions") or {}) | dict(code_record.get("distributions") or {})
    is_known = environment.get("hardware") and environment.get("python")

    seeds = [(name, value) for name, value in settings.items() if name.rpartition(".")[2] == "seed"]
    # Outside of a run nobody may have said why.
    why = origin.get("why") or (f"pipeline run {origin['run']} asked for it" if origin.get("run") else NOT_STATED)
    who = {"by": origin.get("by"), "run": origin.get("run"), "stage": origin.get("stage"), "why": why}

    def answer(question: str, facts: Iterable[tuple[str, Any]], missing: str) -> Answer:
        texts = tuple((name, str(value)) for name, value in facts if value not in (None, ""))
        return Answer(question=question, facts=texts, missing="" if texts else f"{missing}: none")

    return (
        Answer(
            question="which data",
            facts=tuple(data),
            missing=f"no {', '.join(absent)} in its lineage" if absent else "",
        ),
        answer("which code", code.items() if origin.get("code") else (), "the digest of the code, in its provenance"),
        answer("which configuration", settings.items(), "its settings, in the manifest or beside it"),
        answer(
            "which environment and image",
            machine.items() if is_known else (),
            "hardware and versions, in the measurement that its training left",
        ),
        answer("which seeds", seeds, "a seed among its settings"),
        answer("which parents", store.manifest(model).derived_from.items(), "what it was derived from"),
        answer("who and why", who.items() if origin.get("by") else (), "a person, in its provenance"),
    )


def _stated_answers(store: ArtifactStore, model: str) -> tuple[Answer, ...]:
    """The answers of a model that something else trained: what a person said of it last, and what KFP knows."""
    origin, newest = provenance_of(store, model), training_of(store, model)
    texts, place, settings = (newest.get(name) or {} for name in ("statements", "place", "settings"))
    settings = flat(settings)
    pickles = ", ".join(store.manifest(model).details["pickles"])
    allowed = {"pickles": f"{pickles}, which may run code when loaded, because: {texts.get('pickle_reason')}"}
    who = {"by": origin.get("by"), "run": origin.get("run"), "pod": place.get("pod"), "why": texts.get("reason")}
    questions: dict[str, dict[str, Any]] = {
        "which data": {"data": texts.get("data")},
        "which code": {"code": texts.get("code")} | (allowed if pickles else {}),
        "which configuration": {name: value for name, value in settings.items() if name != "seed"} or {"settings": ""},
        "which environment and image": {"environment": texts.get("environment")},
        "which seeds": {"seed": settings.get("seed")},
        "which parents": {"parents": texts.get("parents")},
        "who and why": who,
    }
    return tuple(
        Answer(
            question=question,
            facts=tuple((name, NOT_STATED if value in (None, "") else str(value)) for name, value in facts.items()),
        )
        for question, facts in questions.items()
    )


def require_answers(store: ArtifactStore, model: str) -> None:
    """Raise IncompleteLineageError, which names what is missing, if a model does not answer all seven questions."""
    answers = seven_answers(store, model)
    missing = "".join(f"\n  - {answer.question}: {answer.missing}" for answer in answers if answer.missing)
    if missing:
        raise IncompleteLineageError(
            f"{model} cannot be registered: it does not answer{missing}\nTrain it again: `gatehouse run --rerun train`."
        )


def provenance_of(store: ArtifactStore, reference: Reference | str) -> dict[str, Any]:
    """The first creation of an artifact: who, when, run, stage, key and code; empty if unknown."""
    first = next(iter(store.objects.list(f"provenance/{reference}")), None)
    return (read_record(store.objects, first) or {}) if first else {}


def trained_as(store: ArtifactStore, model: str) -> str:
    """The model as training published it: the source of a calibrated model, else the model itself."""
    return store.manifest(model).derived_from.get("model", model)


def training_of(store: ArtifactStore, model: str) -> dict[str, Any]:
    """What a model's training recorded first, or a person said last: settings, environment; empty for no record."""
    measured = store.measurements(trained_as(store, model), "train")
    return measured[0 if "statements" in measured[0] else -1] if measured else {}


def settings_of(store: ArtifactStore, model: str) -> Mapping[str, Any]:
    """All settings of a training; without a record of it, those in the manifest, which leaves out defaults."""
    configuration = store.manifest(model).configuration
    settings = training_of(store, model).get("settings") or configuration
    return {**settings, **{name: configuration[name] for name in ("calibration",) if name in configuration}}


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


class Explanation(StageModel):
    """All facts about a version."""

    name: str
    version: int
    stage: str
    model: str
    evaluation: str
    verdict: str
    verdict_digest: str
    tags: dict[str, str]
    numbers: tuple[Number, ...]
    answers: tuple[Answer, ...]
    acts: tuple[Act, ...]
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]


def explain(store: ArtifactStore, model: str) -> Explanation:
    """Explain a version, NAME:2 or NAME@champion.

    Raises ConfigurationError if there is no such model or version; MissingArtifactError, CorruptArtifactError if a
    manifest of its lineage is missing or was altered.
    """
    chosen = named(store, model)
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
        verdict_digest=last[1].short if last else "",
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
    elif record.live:
        live = record.live
        beside = f"beside {Reference.parse(live.champion).short}, {live.outcomes:,} keys with an outcome"
        what = f"live verdict {live.verdict} ({live.short}) on version {record.version} {beside}"
    elif record.counterpart:
        other = record.counterpart
        place = f"version {other.version} of {other.store}, record {other.record} (sha256-{other.digest[:12]})"
        what = f"version {record.version} was copied {other.direction} {place}"
    elif record.kind == "promoted":
        share = "" if record.share is None else f" with {record.share:.4g} of the requests"
        what = f"version {record.version} is {record.alias}{share}{', gate overridden' if record.override else ''}"
    else:
        verbs = {"registered": "registered as", "rolled_back": "rolled back to", "withdrawn": "took back"}
        until = f" until {record.approval.until}" if record.approval and record.approval.until else ""
        tags = ", ".join(f"{name}={value}" for name, value in record.tags.items())
        what = f"{verbs.get(record.kind, record.kind)} version {record.version}{until}{f': {tags}' if tags else ''}"
    reasons = [*advised(record.verdict.reasons), *map(str, record.verdict.exempted)] if record.verdict else []
    reasons += record.live.reasons if record.live else ()
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


DIFFERENT_ROWS = "These numbers are of different test rows: they do not say which model is better."
_FEATURES = ("features", "feature-tables", "training-sets", "config")


class Pair(StageModel):
    """One number of both versions; None for a version that lacks it."""

    name: str
    first: Number | None
    second: Number | None


class Change(StageModel):
    """A difference in a part; empty for a side that lacks it.

    Parts are `data`, `features`, `configuration`, `code` and `environment`; of models that something else trained also
    their `files`, and what persons have `stated`.
    """

    part: str
    name: str
    first: str
    second: str

    @classmethod
    def of(cls, part: str, name: str, first: Any, second: Any) -> "Change":
        """A difference between two values of any type; None for a missing one."""
        texts = ["" if value is None else str(value) for value in (first, second)]
        return cls(part=part, name=name, first=texts[0], second=texts[1])


class VersionComparison(StageModel):
    """The comparison of two versions; `same_test` says whether their numbers are from the same test rows."""

    first: str
    second: str
    same_test: bool
    numbers: tuple[Pair, ...]
    changes: tuple[Change, ...]


def compare(store: ArtifactStore, first: str, second: str) -> VersionComparison:
    """Compare two versions, each NAME:2 or NAME@champion. Raises ConfigurationError if there is no such version."""
    names = [named(store, name) for name in (first, second)]
    versions = [name.version for name in names]
    same_test, pairs = compare_numbers(store, *(version.evaluation for version in versions))
    return VersionComparison(
        first=f"{names[0].ledger.model_name}:{versions[0].version}",
        second=f"{names[1].ledger.model_name}:{versions[1].version}",
        same_test=same_test,
        numbers=pairs,
        changes=tuple(changes_between(store, *(version.model for version in versions))),
    )


def compare_numbers(store: ArtifactStore, first: str, second: str) -> tuple[bool, tuple[Pair, ...]]:
    """Whether two evaluations are of the same test rows, and the numbers of both candidates."""
    numbers, other = ({number.name: number for number in numbers_of(store, item)} for item in (first, second))
    try:
        data, other_data = (store.manifest(evaluation).derived_from for evaluation in (first, second))
        same_test = all(data.get(role) == other_data.get(role) for role in ("training_set", "split"))
    except MissingArtifactError:
        same_test = False
    names = dict.fromkeys([*numbers, *other])
    return same_test, tuple(Pair(name=name, first=numbers.get(name), second=other.get(name)) for name in names)


def changes_between(store: ArtifactStore, first: str, second: str) -> Iterator[Change]:
    """What differs in how two models were made."""
    models = (first, second)
    artifacts: list[dict[str, str]] = [{}, {}]
    columns: list[dict[str, str]] = [{}, {}]
    for side, model in enumerate(models):
        for identity in lineage_of(store, model):
            reference = Reference.parse(identity)
            name = f"{reference.kind}/{reference.name}"
            artifacts[side][name] = f"{artifacts[side].get(name, '')} {identity}".strip()
            if reference.kind == "training-sets":
                columns[side] = {column.name: column.type for column in store.manifest(identity).columns}
    for name, *values in changes(*artifacts):
        yield Change.of("features" if name.split("/")[0] in _FEATURES else "data", name, *values)
    for name, *values in changes(*columns):
        yield Change.of("features", f"column {name}", *values)
    for change in changes(*(settings_of(store, model) for model in models)):
        yield Change.of("configuration", *change)
    if any(store.manifest(model).details.get("external") for model in models):
        manifests = (store.manifest(model) for model in models)
        for change in changes(*({entry.path: f"sha256-{entry.sha256}" for entry in each.files} for each in manifests)):
            yield Change.of("files", *change)
        for change in changes(*(training_of(store, model).get("statements") or {} for model in models)):
            yield Change.of("stated", *change)
    for change in code_changes(store, *(str(provenance_of(store, model).get("code", "")) for model in models)):
        yield Change.of("code", *change)
    for change in changes(*(training_of(store, model).get("environment") or {} for model in models)):
        yield Change.of("environment", *change)


def code_changes(store: ArtifactStore, first: str, second: str) -> Iterator[tuple[str, Any, Any]]:
    """Differences between two code digests: modules and distributions if both are recorded, else the digests."""
    if first == second:
        return
    parts = [read_record(store.objects, f"code/{digest}.json") if digest else None for digest in (first, second)]
    if parts[0] and parts[1]:
        yield from changes(parts[0], parts[1])
    else:
        yield "digest", first, second
