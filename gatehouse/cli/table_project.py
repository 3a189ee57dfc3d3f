"""The files of a project over one table, as `gatehouse init --from` writes them."""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from gatehouse.cli.first_look import indented
from gatehouse.cli.table_roles import Roles, sql_name
from gatehouse.data.splitting.spec import Fractions
from gatehouse.features.definitions.settings import feast_name
from gatehouse.features.leakage.stage import MODEL_METRIC
from gatehouse.metrics.tasks.binary import BINARY
from gatehouse.metrics.tasks.found import TASKS
from gatehouse.metrics.tasks.judging import judging_of
from gatehouse.store.database import connect

_LARGEST_BATCH, _STEPS = 1024, 8
"""Of the linear model: an epoch of a small table has this many steps."""
_PROJECT = """\
# Written by `gatehouse init --from`; every line is yours to change. `gatehouse check` finds mistakes.
# Relative paths start in this folder.

name: {name}
description: {description}

# Where snapshots, features, models and reports are kept.
store: .gatehouse/store

# How the table is read. `gatehouse data try FILE` shows what was found in it.
source:
{source}

# What must hold in the table before anything is trained.
contract: contract.yaml

features:
  repo: features
  service: {service}
  # A feature that alone tells {told} better than this ROC AUC is taken for a leak, and ends the
  # run. Where one is that good, and was known at the decision, raise this, and leakage_alarm in policy.yaml.
  leakage_alarm: {alarm}

{split}

model: {name}

# Gradient-boosted trees. For a network: architecture: tabular_mlp, with settings of its own (docs/project.md).
training:
  model:
    architecture: xgboost
    max_depth: 4
  loss:
    kind: {loss}
  optimizer:
    learning_rate: 0.05
  stopping:
    rounds: 300
  seed: 7

# A linear model is tried beside the trees: on some tables nothing is better.
tuning:
  max_trial_count: 4
  objective: {watched}
  parameters:
    - {{name: model.architecture, type: categorical, choices: [xgboost, linear]}}
    - {{name: model.max_depth, type: int, min: 2, max: 6, when: {{model.architecture: xgboost}}}}
    - name: optimizer.learning_rate
      type: double
      min: 0.02
      max: 0.2
      log: true
      when: {{model.architecture: xgboost}}
    - name: optimizer.learning_rate
      type: double
      min: 0.005
      max: 0.05
      log: true
      when: {{model.architecture: linear}}
    - {{name: data.batch_size, type: categorical, choices: [{batch}], when: {{model.architecture: linear}}}}
    - {{name: stopping.epochs, type: categorical, choices: [40], when: {{model.architecture: linear}}}}

evaluation:
  # Columns by whose values metrics are given too.
  slices: [{slice}]

# What a candidate must show to become champion.
policy: policy.yaml

monitoring: {{}}
"""

_TIME_SPLIT = """\
# How long before the newest decision train and validation end: so a later training learns newer rows. `gap` is kept
# free before each; a label counts once it is known.
split:
  train_until: {train_until}
  validation_until: {validation_until}
  gap: PT0S"""

_GROUP_SPLIT = """\
# Many rows are alike in all features. Those that are stay in one part, or the test would ask what training has seen.
split:
  strategy: group
  columns: [{columns}]"""

_NAMED_SPLIT = """\
# All rows of one {group} stay in one part. The label's query keeps the column, and no feature is made of it.
split:
  strategy: group
  columns: [{column}]"""

_HASHED_SPLIT = """\
# By a hash of each row's key{evenly}, as no times divide the rows into three parts.
split:
  strategy: {strategy}"""

_FRACTIONS = """
  # More rows than usual are for test, so that the gate can judge.
  fractions: {{{shares}}}"""

_POLICY = """\
# The promotion policy: a candidate becomes champion only if every rule holds.
# It must be better than a linear model on the same features in these metrics; a linear one, as good.
must_beat_baseline: [{objective}]
# A model this good does not predict: it was told.
leakage_alarm: {{{alarmed}: {alarm}}}
# On the same test rows it must not be worse than the champion by more than this share (paired bootstrap).
champion:
  metric: {objective}
  relative_tolerance: 0.005
# automatic: a passing candidate becomes champion at once. manual: it waits in staging for `gatehouse models promote`.
approval: automatic
"""

_FEAST = """\
# Feast's settings. The stages apply the repository in a workspace of the artifact store, never here.
project: {name}
provider: local
registry: registry.db
offline_store:
  type: gatehouse.features.point_in_time.offline_store.AsofOfflineStore
online_store:
  type: sqlite
  path: online.db
entity_key_serialization_version: 3
"""

_DEFINITIONS = '''\
"""The features of the model: the table, what tells its rows apart, the feature view, the label and the service.

The query of a view is in views/<name>.sql, that of the label in labels/<name>.sql.
"""

from datetime import timedelta

from gatehouse.features.definitions import (
    Available,
    Entity,
    FeatureService,
    FeatureView,
    LabelView,
    Source,
)

source = Source(table="{table}", event_time={time!r})

key = Entity(name="{key}", type="{key_type}")

row = FeatureView(
    name="{view}",
    description="What a row itself says; known at the time of the decision.",
    entities=("{key}",),
    available=Available("event_timestamp"),
    window=timedelta(0),
    features={{
{features}
    }},
)

label = LabelView(
    name="{label}",
    description={description!r},
    entities=("{key}",),
    arrives=Available("known_at"),{task}
)

service = FeatureService(name="{service}", views=("{view}",))
'''


def project_files(
    name: str,
    table: str,
    source: Mapping[str, Any],
    roles: Roles,
    parts: tuple[str, str] | Fractions,
    alike: Sequence[str],
    wanted_alarm: float | None,
    train_rows: int,
) -> Iterator[tuple[str, str]]:
    """Path and text of every file except the contract.

    Args:
        name: Name of the project.
        table: Name of the table.
        source: The declaration that reads it.
        roles: The roles of its columns.
        parts: Distance of the ends of train and validation from the newest row, ISO 8601; their shares if times cannot
            split the rows.
        alike: Columns in which many rows agree, and which have no missing values; empty for none.
        wanted_alarm: The ROC AUC above which a feature or a model is reported as a leak; None for that of the task.
        train_rows: About how many rows the part train has.
    """
    judging = judging_of(TASKS[roles.task])
    ((alarmed, limit),) = judging.leakage_alarm.items()
    alarm = judging.feature_alarm if wanted_alarm is None else wanted_alarm
    highest = alarm if alarmed == MODEL_METRIC else limit
    yield "project.yaml", _project(name, source, roles, _split(roles, parts, alike), alarm, train_rows)
    yield "policy.yaml", _POLICY.format(objective=judging.objective, alarmed=alarmed, alarm=highest)
    yield "features/feature_store.yaml", _FEAST.format(name=feast_name(name))
    yield f"features/staging/{table}.sql", _staging(table, roles)
    yield f"features/known/{table}.sql", _known(table, roles)
    key, time, view = _key(roles), _in_sql(roles.time), f"{table}_row"
    names = ", ".join(_in_sql(one.name) for one in roles.features)
    yield (
        f"features/views/{view}.sql",
        "-- What the row itself says. `event_timestamp` is when a value is known, not what it is about.\n"
        f"SELECT {_bare(key)}, {time} AS event_timestamp, {names}\nFROM staging.{_bare(table)}\n",
    )
    known = _in_sql(roles.known) if roles.known else time
    outcome, group = (
        f"{_in_sql(roles.label.name)} {roles.positive}".strip(),
        f", {_in_sql(roles.group)}" if roles.group else "",
    )
    yield (
        f"features/labels/{_label(roles)}.sql",
        "-- One row a decision: when it is made, its outcome, and when that is known.\n"
        f"SELECT {_bare(key)}, {time} AS decision_time, {outcome} AS label, {known} AS known_at{group}\n"
        f"FROM staging.{_bare(table)}\n",
    )
    yield "features/definitions.py", _definitions(table, roles)


def _label(roles: Roles) -> str:
    """The name of the label's view; definitions have names in ASCII."""
    name = sql_name(roles.label.name)
    return name if name.isascii() else "outcome"


def _title(roles: Roles) -> str:
    return f"Predicts {roles.label.name} {roles.positive}".strip()


def _split(roles: Roles, parts: tuple[str, str] | Fractions, alike: Sequence[str]) -> str:
    if isinstance(parts, tuple):
        return _TIME_SPLIT.format(train_until=parts[0], validation_until=parts[1])
    shares = ", ".join(f"{name}: {share}" for name, share in parts.model_dump().items())
    more = "" if parts == Fractions() else _FRACTIONS.format(shares=shares)
    if roles.group:
        return _NAMED_SPLIT.format(group=sql_name(roles.group), column=json.dumps(sql_name(roles.group))) + more
    if alike:
        return _GROUP_SPLIT.format(columns=", ".join(json.dumps(sql_name(name)) for name in alike)) + more
    if not TASKS[roles.task].has_classes:
        return _HASHED_SPLIT.format(evenly="", strategy="random") + more
    return _HASHED_SPLIT.format(evenly=", evenly in each label", strategy="stratified") + more


def _project(name: str, source: Mapping[str, Any], roles: Roles, split: str, alarm: float, train_rows: int) -> str:
    loss, watched = next(iter(TASKS[roles.task].losses.items()))
    title = _title(roles) if _title(roles).isascii() else f"Predicts {_label(roles)}"  # Compiled specs are ASCII.
    return _PROJECT.format(
        name=name,
        description=json.dumps(f"{title}."),
        source=indented(source).rstrip(),
        alarm=alarm,
        told="the label" if TASKS[roles.task].has_classes else "labels above the median from the others",
        service=f"{_label(roles)}_prediction",
        split=split,
        slice=json.dumps(sql_name(roles.slice)) if roles.slice else "",
        loss=loss,
        watched=watched,
        batch=max(1, min(_LARGEST_BATCH, train_rows // _STEPS)),
    )


def _definitions(table: str, roles: Roles) -> str:
    kinds = {
        sql_name(one.name): "categorical" if one.kind == "string" else "double" if one.long else "numeric"
        for one in roles.features
    }
    return _DEFINITIONS.format(
        table=table,
        time=roles.time,
        key=_key(roles),
        key_type="int64" if roles.key and roles.key.kind == "int64" else "string",
        view=f"{table}_row",
        features="\n".join(f'        "{feature}": "{kind}",' for feature, kind in kinds.items()),
        label=_label(roles),
        description=f"{_title(roles)}.",
        service=f"{_label(roles)}_prediction",
        task=_task(roles),
    )


def _task(roles: Roles) -> str:
    """The settings of the label that differ from the defaults."""
    task = "" if roles.task == BINARY.name else f'\n    task="{roles.task}",'
    several = TASKS[roles.task].output == "probabilities"
    classes = f"\n    classes={roles.label.texts!r}," if several else ""
    keeps = f"\n    keeps=({sql_name(roles.group)!r},)," if roles.group else ""
    return f"{task}{classes}{keeps}"


def _key(roles: Roles) -> str:
    """The name of the entity, and of its column; definitions have names in ASCII."""
    name = sql_name(roles.key.name) if roles.key else ""
    return name if name and name.isascii() else "row_key"


def _staging(table: str, roles: Roles) -> str:
    """SQL of the table with names for SQL, with a generated key if it has none."""
    names = [roles.time, *filter(None, (roles.known, roles.group)), *(one.name for one in roles.features)]
    kept = [*([roles.key.name] if roles.key else []), roles.label.name, *names]
    infinite = {one.name for one in (*roles.features, roles.label) if one.infinite}
    lines = []
    for each in dict.fromkeys(kept):
        value = _quoted(each)
        name = _bare(_key(roles)) if roles.key and each == roles.key.name else _in_sql(each)
        if each in infinite:
            lines.append(f"if(isfinite({value}), {value}, NULL) AS {name}")
        else:
            lines.append(name if name in (each, value) else f"{value} AS {name}")
    told = "-- The table under names that SQL takes without quotes."
    told += " Infinite values become nulls." * bool(infinite)
    if not roles.key:
        values = ", ".join(
            _quoted(each) for each in [roles.time, *filter(None, (roles.group,)), *(one.name for one in roles.features)]
        )
        digest = f"md5(row({values})::VARCHAR)"
        # By a hash of the label, so that the number does not tell the outcome.
        order = f"md5(concat({digest}, {_quoted(roles.label.name)}))"
        number = f"row_number() OVER (PARTITION BY {digest} ORDER BY {order})"
        lines.insert(0, f"{digest} || '-' || {number} AS row_key")
        told += " The key is made of the row's values: rows that are alike are numbered."
    columns = ",\n    ".join(lines)
    return f"{told}\nSELECT\n    {columns}\nFROM raw.{_bare(table)}\n"


def _known(table: str, roles: Roles) -> str:
    """SQL of the table as it was at a moment."""
    as_of, time = "getvariable('as_of')", _quoted(roles.time)
    later = "later ones are not there" + ", outcomes that were not known are not either" * bool(roles.known)
    told = f"-- The rows as they stood at `as_of`: {later}.\n"
    told += "-- The leakage check recomputes every feature from this and compares."
    select = "SELECT *"
    if roles.known:
        known = _quoted(roles.known)
        late = (
            f"    CASE WHEN {known} <= {as_of} THEN {each} END AS {each}" for each in (_quoted(roles.label.name), known)
        )
        select = "SELECT * REPLACE (\n" + ",\n".join(late) + "\n)"
    where = f"{time} BETWEEN getvariable('since') AND {as_of}"
    return f"{told}\n{select}\nFROM source.{_bare(table)}\nWHERE {where}\n"


def _in_sql(column: str) -> str:
    """The SQL name of a column of the file."""
    return _bare(sql_name(column))


def _bare(name: str) -> str:
    """A name for SQL, in quotes if it is a reserved word, such as order."""
    return _quoted(name) if name in _words_of_sql() else name


@cache
def _words_of_sql() -> frozenset[str]:
    words = "SELECT keyword_name FROM duckdb_keywords() WHERE keyword_category <> 'unreserved'"
    with connect() as database:
        return frozenset(str(word) for (word,) in database.execute(words).fetchall())


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def write_files(folder: Path, files: Iterator[tuple[str, str]]) -> None:
    """Write each file below the folder."""
    for path, text in files:
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
