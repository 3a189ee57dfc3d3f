"""The classes that a user writes in `definitions.py`: sources, entities, feature views, the label view, services.

Reading definitions loads neither Feast nor DuckDB. The query of a view is in a file with the view's name.
"""

from datetime import timedelta
from typing import Any, Literal

from pydantic import Field, ValidationError

from gatehouse.configuration.strict import Duration
from gatehouse.configuration.yaml_lines import in_words, nearest, value_text
from gatehouse.errors import ConfigurationError
from gatehouse.metrics.tasks import TaskName
from gatehouse.store.identity import Spec, operational

Kind = Literal["numeric", "double", "categorical"]
"""Kind of a feature: a 32-bit number, a 64-bit number, or a text."""
EVENT_TIMESTAMP = "event_timestamp"
KNOWN_FROM = "known_from"
_NAME = r"^[a-z][a-z0-9_]{0,99}$"


class _Definition(Spec):
    """A definition with wrong arguments raises a ConfigurationError that lists all of them."""

    def __init__(self, **arguments: Any) -> None:
        try:
            super().__init__(**arguments)
        except ValidationError as error:
            name = arguments.get("name", arguments.get("table", ""))
            problems = []
            for detail in error.errors():
                key = ".".join(map(str, detail["loc"]))
                text = in_words(detail)
                if detail["type"] == "extra_forbidden":
                    text = f"there is no such argument{nearest(key, type(self).model_fields)}"
                elif detail["type"] != "missing" and ", found " not in text:
                    text = f"{text}, found {value_text(detail['input'])}"
                problems.append(f"{type(self).__name__} {name}".rstrip() + f": {key}: {text}")
            raise ConfigurationError("\n  - ".join(problems)) from error


class Available(_Definition):
    """Since when a row is known: the time in `column` of the query, and a publication lag on top of it."""

    column: str = Field(
        description="Column of the query; `event_timestamp` if a row is known from the time of its event."
    )
    lag: Duration = Field(timedelta(0), ge=timedelta(0), description="How long after that time the row is published.")

    def __init__(self, column: str, lag: timedelta = timedelta(0)) -> None:
        super().__init__(column=column, lag=lag)


class Source(_Definition):
    """A raw table that grows in time. Tables that no source names are static: a change touches every row."""

    table: str = Field(description="The table, which queries read as `raw.<table>`.")
    event_time: str = Field(description="Its column with the event time of a row.")
    lead: Duration = Field(
        timedelta(0),
        ge=timedelta(0),
        description="How long before its event time a row may be known, for example in a timetable.",
    )


class Entity(_Definition):
    """A thing that features describe, such as a customer; its join key has the same name."""

    name: str = Field(pattern=_NAME)
    type: Literal["string", "int64"] = Field("string", description="Type of the join key.")


class FeatureView(_Definition):
    """A feature view; `views/<name>.sql` computes its keys, `event_timestamp`, its availability and its features."""

    name: str = Field(pattern=_NAME)
    entities: tuple[str, ...] = Field(min_length=1, description="Names of the entities that its rows are about.")
    features: dict[str, Kind] = Field(min_length=1, description="Kind of every feature, in the query's columns.")
    available: Available | None = Field(None, description="From when on a row is known; required unless static.")
    static: bool = Field(False, description="Its rows were always known and have no time.")
    ttl: Duration | None = Field(
        None, gt=timedelta(0), description="How long a row stays usable after its event; without a value, for ever."
    )
    window: Duration | None = Field(
        None,
        ge=timedelta(0),
        description="Longest look-back: a row depends on source rows whose event time is at most this much older. "
        "Without it, a row may depend on the whole past, which is read again after every change.",
    )
    freshness: Duration | None = operational(
        None,
        gt=timedelta(0),
        description="How old its newest event may be when features are computed; if it is older, there is a warning.",
    )
    event_time_only: bool = Field(
        False,
        description="It is not known when its rows became known, because they were all delivered at once: a row "
        "counts as known from its event time, a corrected row too. Training may then use values that serving did not "
        "have.",
    )
    version: int = Field(1, ge=1, description="Raise it when the meaning of the features changes.")
    description: str = operational("")


class LabelView(_Definition):
    """The entity rows and their label; `labels/<name>.sql` gives one row for each decision."""

    name: str = Field(pattern=_NAME)
    entities: tuple[str, ...] = Field(min_length=1, description="Names of the entities that a row is about.")
    decision_time: str = Field("decision_time", description="Column with the time of the decision.")
    label: str = Field("label", description="Column with the outcome.")
    task: TaskName = Field(
        "binary", description="What a model predicts of the outcome; it determines which labels are allowed."
    )
    classes: tuple[str, ...] = Field(
        (),
        description="For the task multiclass: the outcome's values, in the order of their class numbers from 0; "
        "empty if the column holds the numbers.",
    )
    group: str = Field("", description="For the task ranking: the entity whose rows are ranked together.")
    arrives: Available = Field(description="Column with the time at which the label arrives, and its delay.")
    horizon: Duration = Field(
        timedelta(0),
        ge=timedelta(0),
        description="A label is used only after this time since its decision, even if it arrived earlier; before "
        "that, only outcomes that come quickly would be there.",
    )
    window: Duration | None = Field(
        None,
        ge=timedelta(0),
        description="Longest look-back: a row depends on source rows whose event time is at most this much before its "
        "decision. Then rows are computed in pieces, and every row needs a time of decision. Without it, a row may "
        "depend on the whole past, and all rows are one piece.",
    )
    lead: Duration = Field(
        timedelta(0),
        ge=timedelta(0),
        description="How much later than its decision the source rows are that a row depends on, such as those of the "
        "outcome. It stands beside `window`, and replaces the leads of the sources.",
    )
    set_aside: str = Field(
        "", description="Column with a reason not to use the row, null if it is used; empty for no such column."
    )
    keeps: tuple[str, ...] = Field(
        (),
        description="Columns of the query that are kept in the training set but are not features, such as protected "
        "columns or columns for slices.",
    )
    description: str = operational("")


class OnDemandView(_Definition):
    """Features computed from one request; `on_demand/<name>.sql` reads the table `rows`, each row on its own."""

    name: str = Field(pattern=_NAME)
    views: tuple[str, ...] = Field((), description="Names of the feature views whose features the query reads.")
    request: dict[str, Kind] = Field(
        {}, description="Kind of every value that comes with a request; in training, a column of the label's query."
    )
    features: dict[str, Kind] = Field(min_length=1, description="Kind of every feature, in the query's columns.")
    description: str = operational("")


class FeatureService(_Definition):
    """The feature views that one model reads."""

    name: str = Field(pattern=_NAME)
    views: tuple[str, ...] = Field(min_length=1, description="Names of its feature views, in the order of columns.")
    on_demand: tuple[str, ...] = Field((), description="Names of its on-demand views; their columns come last.")
    description: str = operational("")
