"""Finds problems of definitions, each on its own and together, such as unknown names and repeated columns."""

from collections.abc import Collection, Iterable, Iterator, Mapping

from gatehouse.configuration.yaml_lines import nearest
from gatehouse.features.definitions.declarations import (
    EVENT_TIMESTAMP,
    KNOWN_FROM,
    FeatureService,
    FeatureView,
    LabelView,
    OnDemandView,
    Source,
)
from gatehouse.features.definitions.loading import FILE, Definitions
from gatehouse.metrics.tasks import TASKS


def problems_of(defined: Definitions) -> list[str]:
    """All problems of what `definitions.py` defines, each with what was expected."""
    problems = [*_unknown_names(defined), *_repeated_names(defined)]
    problems += [problem for view in defined.views.values() for problem in view_problems(view)]
    problems += [problem for label in defined.labels for problem in _label_problems(label)]
    for name, on_demand in defined.on_demand.items():
        for service in defined.services.values():
            if name in service.on_demand:
                unread = [view for view in on_demand.views if view not in service.views]
                problems += [f"{service.name}: on_demand: {name} reads {view}: add it to views" for view in unread]
    return [f"{FILE}: {problem}" for problem in problems]


def source_problems(sources: Mapping[str, Source], tables: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """Sources of `definitions.py` that the project's source does not have.

    `tables` has the type of every column that the source declares, by table.
    """
    for name, source in sources.items():
        if name not in tables:
            expected = f"({', '.join(tables)}){nearest(name, tables)}"
            yield f"{FILE}: Source {name}: table: expected a table of the source {expected}"
        elif (kind := tables[name].get(source.event_time)) != "timestamp":
            times = [column for column, declared in tables[name].items() if declared == "timestamp"]
            actual = f"{source.event_time}, which is {kind}" if kind else source.event_time
            suggestion = nearest(source.event_time, times)
            yield f"{FILE}: Source {name}: event_time: expected one of {', '.join(times)}, found {actual}{suggestion}"


def _unknown_names(defined: Definitions) -> Iterator[str]:
    named: list[tuple[str, str, Iterable[str], Collection[str]]] = []
    with_keys: list[FeatureView | LabelView] = [*defined.views.values(), *defined.labels]
    named += [(f"{keyed.name}: entities", "Entity", keyed.entities, defined.entities) for keyed in with_keys]
    services = defined.services.values()
    readers: list[FeatureService | OnDemandView] = [*services, *defined.on_demand.values()]
    named += [(f"{reader.name}: views", "FeatureView", reader.views, defined.views) for reader in readers]
    named += [(f"{item.name}: on_demand", "OnDemandView", item.on_demand, defined.on_demand) for item in services]
    for where, kind, names, defined_names in named:
        unknown = [name for name in names if name not in defined_names]
        yield from (f"{where}: no {kind} {name!r}{nearest(name, defined_names)}" for name in unknown)


def _repeated_names(defined: Definitions) -> Iterator[str]:
    """Columns that a training set would have twice, or that have a name that our own queries use."""
    owner = dict.fromkeys(("decision_time", "label", "label_time"), "the label")
    for label in defined.labels:
        names = filter(None, (label.label, label.arrives.column, label.set_aside, *label.keeps))
        owner |= {name.lower(): f"the label {label.name}" for name in names}
        yield from _internal(label.name, label.keeps)
    owner |= dict.fromkeys((*defined.entities, EVENT_TIMESTAMP, KNOWN_FROM), "the entities and times")
    columns = [(view.name, "features: ", [*view.features]) for view in defined.views.values()]
    columns += [(view.name, "", [*view.request, *view.features]) for view in defined.on_demand.values()]
    requested = {view.name: {*view.request} for view in defined.on_demand.values()}
    for name, key, features in columns:
        yield from _internal(name, features)
        for feature in features:
            previous = owner.get(feature.lower(), "its request" if features.count(feature) > 1 else "")
            if previous:
                yield f"{name}: {key}{feature!r} is also given by {previous}: expected another name"
            # Several on-demand views may read one value of the request.
            if feature not in requested.get(name, ()):
                owner.setdefault(feature.lower(), f"the view {name}")


def _internal(view: str, names: Iterable[str]) -> Iterator[str]:
    """Names that begin with two underscores are reserved for our own queries."""
    reserved = (name for name in names if name.startswith("__"))
    yield from (f"{view}: {name!r}: expected a name that does not begin with two underscores" for name in reserved)


def view_problems(view: FeatureView) -> Iterator[str]:
    """Problems of one view on its own."""
    declared = {
        "static": view.static,
        "event_time_only": view.event_time_only,
        "available": view.available is not None,
    }
    chosen = [name for name, is_declared in declared.items() if is_declared]
    if len(chosen) > 1:
        yield f"{view.name}: expected one of available, static and event_time_only, found {' and '.join(chosen)}"
    elif not chosen:
        yield (
            f'{view.name}: states no availability: expected available=Available("<column>", lag=timedelta(...)) with '
            "the query's column that says since when a row is known, static=True if it was always known, or "
            "event_time_only=True if nobody knows"
        )
    elif view.static and view.freshness:
        yield f"{view.name}: expected no freshness for a static view, whose rows have no age"


def _label_problems(label: LabelView) -> Iterator[str]:
    task = TASKS[label.task]
    present = {*label.entities, label.label, "decision_time", "label", "label_time"}
    if again := sorted(name for name in {*label.keeps} if name in present or label.keeps.count(name) > 1):
        yield f"{label.name}: keeps: {', '.join(again)}: in the training set already; leave it out"
    if label.classes and task.output != "probabilities":
        yield f"{label.name}: classes: expected none for the task {label.task}, found {len(label.classes)}"
    if len(set(label.classes)) < len(label.classes) or len(label.classes) == 1:
        yield f"{label.name}: classes: expected two different names at least, found {label.classes}"
    if task.counted == "group" and label.group not in label.entities:
        yield (
            f"{label.name}: group: expected the entity whose rows are ranked together ({', '.join(label.entities)}), "
            f"found {label.group!r}"
        )
    if task.counted == "row" and label.group:
        yield f"{label.name}: group: expected none for the task {label.task}, found {label.group!r}"
