"""Finds problems of definitions, each on its own and together: unknown names, and columns that are given twice."""

from collections.abc import Collection, Iterable, Iterator, Mapping

from gatehouse.configuration.yaml_lines import nearest
from gatehouse.features.definitions.declarations import (
    EVENT_TIMESTAMP,
    KNOWN_FROM,
    FeatureView,
    LabelView,
    Source,
    Stream,
)
from gatehouse.features.definitions.loading import FILE, Definitions
from gatehouse.metrics.tasks.found import TASKS


def problems_of(defined: Definitions) -> list[str]:
    """All problems of what `definitions.py` defines, each with what was expected."""
    return [*_of_streams(defined), *_of_views(defined), *_of_on_demand(defined)]


def _of_streams(defined: Definitions) -> list[str]:
    return [
        f"{FILE}: Stream {table}: table: {problem}"
        for table in defined.streams
        for problem in _unknown("Source", [table], defined.sources, defined)
    ]


def source_problems(
    sources: Mapping[str, Source], streams: Mapping[str, Stream], tables: Mapping[str, Mapping[str, str]]
) -> Iterator[str]:
    """Sources and streams of `definitions.py` that the project's source does not have.

    Args:
        sources: By table.
        streams: By table.
        tables: The type of every column that the source declares, by table.
    """
    for name, source in sources.items():
        if name not in tables:
            known = f"({', '.join(tables)}){nearest(name, tables)}"
            yield f"{FILE}: Source {name}: table: expected a table of the source {known}"
        elif (kind := tables[name].get(source.event_time)) != "timestamp":
            times = [column for column, each in tables[name].items() if each == "timestamp"]
            found = f"{source.event_time}, which is {kind}" if kind else source.event_time
            meant = nearest(source.event_time, times)
            yield f"{FILE}: Source {name}: event_time: expected one of {', '.join(times)}, found {found}{meant}"
    for name, stream in streams.items():
        for column in stream.key if name in tables else ():
            if column not in tables[name]:
                meant = nearest(column, tables[name])
                yield f"{FILE}: Stream {name}: key: expected columns of the table, found {column}{meant}"


def _unknown(kind: str, names: Iterable[str], known: Collection[str], defined: Definitions) -> Iterator[str]:
    """Names that nothing defines, with those that may be meant. A definition that is wrong is told of itself."""
    for name in names:
        if name not in known and name not in defined.wrong:
            yield f"no {kind} {name!r}{nearest(name, known)}"


def _of_views(defined: Definitions) -> list[str]:
    problems = [f"{FILE}: {problem}" for view in defined.views.values() for problem in problems_of_view(view)]
    problems += [f"{FILE}: {problem}" for label in defined.labels for problem in _of_label(label)]
    keyed: list[FeatureView | LabelView] = [*defined.views.values(), *defined.labels]
    for one in keyed:
        unknown = _unknown("Entity", one.entities, defined.entities, defined)
        problems += [f"{FILE}: {one.name}: entities: {problem}" for problem in unknown]
    for service in defined.services.values():
        unknown = _unknown("FeatureView", service.views, defined.views, defined)
        problems += [f"{FILE}: {service.name}: views: {problem}" for problem in unknown]
    owner = _label_columns(defined.labels)
    owner |= dict.fromkeys((*defined.entities, EVENT_TIMESTAMP, KNOWN_FROM), "the entities and times")
    for name, view in defined.views.items():
        problems += _internal(name, view.features)
        for feature in view.features:
            if given := owner.get(feature.lower()):
                problems.append(
                    f"{FILE}: {name}: features: {feature!r} is also given by {given}: expected another name"
                )
            owner.setdefault(feature.lower(), f"the view {name}")
    return problems


def problems_of_view(view: FeatureView) -> list[str]:
    """Problems of one view on its own, with what to write instead."""
    if view.static and view.available:
        return [f"{view.name}: is static and names an availability: expected one of them"]
    if view.static and view.freshness:
        return [f"{view.name}: is static and states a freshness: its rows have no age, expected one of them"]
    if view.event_time_only and (view.static or view.available):
        other = "is static" if view.static else "names an availability"
        return [f"{view.name}: is event_time_only and {other}: expected one of them"]
    if not view.static and not view.event_time_only and view.available is None:
        return [
            f'{view.name}: states no availability: expected available=Available("<column>", lag=timedelta(...)) with '
            "the query's column that says since when a row is known, static=True where it was always known, or "
            "event_time_only=True where nobody knows"
        ]
    return []


def _of_label(label: LabelView) -> list[str]:
    """Problems of a label view on its own."""
    problems, task = [], TASKS[label.task]
    there = {*label.entities, label.label, "decision_time", "label", "label_time"}
    if again := sorted(name for name in {*label.keeps} if name in there or label.keeps.count(name) > 1):
        problems.append(f"{label.name}: keeps: {', '.join(again)}: in the training set already; leave it out")
    problems += _internal(label.name, label.keeps)
    if label.classes and task.output != "probabilities":
        problems.append(f"{label.name}: classes: expected none for the task {label.task}, found {len(label.classes)}")
    if len(set(label.classes)) < len(label.classes) or len(label.classes) == 1:
        problems.append(f"{label.name}: classes: expected two different names at least, found {label.classes}")
    if task.counted == "group" and label.group not in label.entities:
        problems.append(
            f"{label.name}: group: expected the entity whose rows are ranked together ({', '.join(label.entities)}), "
            f"found {label.group!r}"
        )
    if task.counted == "row" and label.group:
        problems.append(f"{label.name}: group: expected none for the task {label.task}, found {label.group!r}")
    return problems


def _of_on_demand(defined: Definitions) -> list[str]:
    problems = []
    taken = {*defined.entities, EVENT_TIMESTAMP, KNOWN_FROM, *_label_columns(defined.labels)}
    taken |= {name.lower() for view in defined.views.values() for name in view.features}
    for one in defined.on_demand.values():
        unknown = _unknown("FeatureView", one.views, defined.views, defined)
        problems += [f"{FILE}: {one.name}: views: {problem}" for problem in unknown]
        new = [*one.request, *one.features]
        again = sorted(name for name in {*new} if name.lower() in taken or new.count(name) > 1)
        given = "is also given by another view, by the label or as an entity: expected another name"
        problems += [f"{FILE}: {one.name}: {name!r} {given}" for name in again] + _internal(one.name, new)
        taken |= {name.lower() for name in one.features}
    for service in defined.services.values():
        unknown = _unknown("OnDemandView", service.on_demand, defined.on_demand, defined)
        problems += [f"{FILE}: {service.name}: on_demand: {problem}" for problem in unknown]
        for name in (each for each in service.on_demand if each in defined.on_demand):
            unread = [view for view in defined.on_demand[name].views if view not in service.views]
            problems += [f"{FILE}: {service.name}: on_demand: {name} reads {view}: add it to views" for view in unread]
    return problems


def _label_columns(labels: Iterable[LabelView]) -> dict[str, str]:
    """For each column of a training set that is no feature, who gives it; also the columns that choose its rows."""
    found = dict.fromkeys(("decision_time", "label", "label_time"), "the label")
    for label in labels:
        names = filter(None, (label.label, label.arrives.column, label.set_aside, *label.keeps))
        found |= {name.lower(): f"the label {label.name}" for name in names}
    return found


def _internal(view: str, names: Iterable[str]) -> list[str]:
    """A problem for each name that begins with two underscores: such names are reserved for our own queries."""
    own = (name for name in names if name.startswith("__"))
    return [f"{FILE}: {view}: {name!r}: expected a name that does not begin with two underscores" for name in own]
