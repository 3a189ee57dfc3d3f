"""The stage that retrieves rows to score, with the features known at each row's time."""

from gatehouse.configuration.times import in_utc
from gatehouse.errors import ConfigurationError
from gatehouse.store.stage import CONTENTS, StageModel, stage
from gatehouse.store.store import ArtifactStore


class DecisionsRequest(StageModel):
    """Which decisions to retrieve, and the feature service to join.

    Attributes:
        since: Only decisions from this time on, ISO 8601; empty for all.
        until: Only decisions before this time, ISO 8601; empty for all up to `as_of`.
        keys: Reference of keys and times to score instead of the label's decisions.
        unlabelled: Only decisions whose label is not known yet or younger than its horizon; the result may be empty.
    """

    snapshot: str
    feature_tables: str
    definitions: str
    service: str
    as_of: str
    since: str = ""
    until: str = ""
    keys: str = ""
    unlabelled: bool = False


class DecisionsResult(StageModel):
    """The rows and their number; the reference is empty where there are no rows."""

    decisions: str
    rows: int


@stage(
    "retrieve_decisions",
    title="Retrieve the rows to score",
    pages={"decisions": CONTENTS},
)
def retrieve_decisions(request: DecisionsRequest, store: ArtifactStore) -> DecisionsResult:
    """Join a feature service point-in-time to decisions whose outcome need not be known; no label is read.

    Raises ConfigurationError if the span does not parse or holds no decision, more than one of span, keys and
    unlabelled is chosen, the keys are not those of the label's rows, or there is no such service.
    """
    from gatehouse.data.splitting.publication import publish_rows
    from gatehouse.features.database import connect, open_tables, set_time
    from gatehouse.features.decisions.rows import decided_rows, rows_of_file, unlabelled_rows
    from gatehouse.features.definitions.repository import check_out
    from gatehouse.features.point_in_time.feast_store import applied, retrieve
    from gatehouse.features.table_files import feature_files, raw_tables

    texts = {name: getattr(request, name) for name in ("as_of", "since", "until")}
    as_of, since, until = (in_utc(name, text) if text else None for name, text in texts.items())
    if as_of is None or (until or as_of) > as_of or (since and since >= (until or as_of)):
        raise ConfigurationError(
            f"Decisions: expected since before until, and until at most {request.as_of}, the newest time that the "
            f"snapshot covers; found {request.since or 'no since'} and {request.until or 'no until'}."
        )
    if sum(map(bool, (request.keys, since or until, request.unlabelled))) > 1:
        raise ConfigurationError(
            "Decisions: expected a span (since, until), keys or unlabelled, found more than one of them."
        )
    with store.workspace() as workspace:
        repository = check_out(store, request.definitions, workspace / "feature_repo")
        with connect() as connection:
            open_tables(connection, raw_tables(store, request.snapshot))
            for name, moment in (("as_of", as_of), ("decided_since", since), ("decided_until", until)):
                set_time(connection, name, moment)
            if request.keys:
                (file,) = store.manifest(request.keys).files
                store.copy(request.keys, file.path, workspace / "keys" / file.path)
                rows = rows_of_file(connection, repository, workspace / "keys" / file.path, as_of)
            else:
                rows = (unlabelled_rows if request.unlabelled else decided_rows)(connection, repository)
        if request.unlabelled and not rows.num_rows:
            return DecisionsResult(decisions="", rows=0)
        if not rows.num_rows:
            raise ConfigurationError(
                f"Decisions: expected at least one between {request.since or 'the beginning'} and "
                f"{(until or as_of).isoformat()}, found none in {request.snapshot}. Give another since, or take a "
                "newer snapshot."
            )
        with applied(repository, feature_files(store, request.feature_tables), workspace) as feast:
            table = retrieve(feast, repository, request.service, rows, workspace).table
        roles = ("snapshot", "feature_tables", "definitions", "keys")
        inputs = {role: reference for role in roles if (reference := getattr(request, role))}
        options = {name: getattr(request, name) for name in ("service", "as_of", "since", "until")}
        options |= {"unlabelled": True} if request.unlabelled else {}
        keys, task = list(repository.entity_keys), repository.label.task
        details = {"entity_keys": keys, "decision_time": "decision_time", "task": task}
        reference = publish_rows(store, "decisions", request.service, table, details, inputs, options)
    return DecisionsResult(decisions=str(reference), rows=table.num_rows)
