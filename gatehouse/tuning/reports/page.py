"""The page of an experiment: the result and why it ended, then the history of values and the search space."""

from gatehouse.reports.page import Report
from gatehouse.reports.row_charts import bar_chart
from gatehouse.store.store import ArtifactStore
from gatehouse.tuning.reports.history import curves, history, stops
from gatehouse.tuning.reports.importance import importances
from gatehouse.tuning.reports.shown import EARLY_STOPPED, Body, Dimension, Objective, Shown, told, values_of
from gatehouse.tuning.reports.space import contour, coordinates, pareto, slices
from gatehouse.tuning.reports.trials import add_trials
from gatehouse.tuning.reports.verdict import subtitle, verdict


def page(store: ArtifactStore, reference: str) -> str:
    """The page of a published experiment, as HTML.

    Args:
        store: The artifact store.
        reference: Reference of the experiment.
    """
    about, trials = store.read_json(reference, "experiment.json"), store.read_json(reference, "trials.json")
    return drawn(Shown(store.manifest(reference).name, about, trials))


def drawn(shown: Shown) -> str:
    """The page of an experiment as HTML, also of one that is running or was interrupted."""
    made = Report(f"Experiment for {shown.name}", subtitle(shown), verdict(shown))
    if shown.best:
        _best(made, shown)
    if len(shown.objectives) > 1 and shown.succeeded:
        made.section("Pareto front").figures(*pareto(shown))
    if shown.trials:
        made.section("History").figures(*(history(shown, one) for one in shown.objectives))
    if any(one.get("intermediate") for one in shown.trials):
        _early_stopping(made, shown)
    if len(shown.succeeded) > 1:
        for objective in shown.objectives:
            _space(made, shown, objective)
    if shown.about.get("constraints"):
        _constraints(made, shown)
    if shown.trials:
        add_trials(made, shown)
    _searched(made, shown)
    return made.html()


def _best(made: Report, shown: Shown) -> None:
    best = shown.best
    assert best is not None
    name = "Knee of the front" if shown.front else "Best trial"
    facts = {"trial": f"{best['number']}: {values_of(shown, best)}"}
    facts |= {key: told(value) for key, value in best["parameters"].items()}
    facts |= {key: told(value) for key, value in (best.get("measures") or {}).items()}
    if best.get("model"):
        facts["model"] = str(best["model"])
    made.section(name).facts(facts)
    if best.get("parent") is not None:
        _lineage(made, shown, best)


def _lineage(made: Report, shown: Shown, best: Body) -> None:
    """The ancestors of the best member of a population, and the settings of each."""
    line, by_number = [best], {one["number"]: one for one in shown.trials}
    while (parent := line[0].get("parent")) is not None:
        line.insert(0, by_number[parent])
    names = list(best["parameters"])
    rows = [
        [one["number"], *(told(one["parameters"].get(name)) for name in names), values_of(shown, one)] for one in line
    ]
    made.section("Lineage of the best trial").table(["trial", *names, "value"], rows)


def _early_stopping(made: Report, shown: Shown) -> None:
    made.section("Learning curves").figure(*curves(shown, shown.objectives[0]))
    if any(one["state"] == EARLY_STOPPED for one in shown.trials):
        made.element(stops(shown))


def _space(made: Report, shown: Shown, objective: Objective) -> None:
    of = f" of {objective.metric}" if len(shown.objectives) > 1 else ""
    found = list(importances(shown, objective))
    if found:
        made.section(f"Importance{of}").figures(*((bar_chart(bars), words) for words, bars in found))
    made.section(f"Parameters{of}").figure(*coordinates(shown, objective))
    made.figures(*slices(shown, objective))
    important = sorted((bar for _, bars in found for bar in bars), key=lambda bar: -bar[1])
    if drawn_contour := contour(shown, objective, important):
        made.figure(*drawn_contour)


def _constraints(made: Report, shown: Shown) -> None:
    rows = []
    for one in shown.about["constraints"]:
        name = str(one["measure"])
        bounds = [
            f"{word.replace('_', ' ')} {told(one[word])}"
            for word in ("at_most", "at_least")
            if one.get(word) is not None
        ]
        measured = [each["measures"][name] for each in shown.succeeded if name in (each.get("measures") or {})]
        broken = sum(_breaks(value, one) for value in measured)
        rows.append([name, ", ".join(bounds), len(measured), broken])
    made.section("Constraints").table(["measure", "bound", "trials measured", "trials that break it"], rows)


def _breaks(value: float, bound: dict[str, float]) -> bool:
    most, least = bound.get("at_most"), bound.get("at_least")
    return (most is not None and value > most) or (least is not None and value < least)


def _searched(made: Report, shown: Shown) -> None:
    rows = []
    for one in shown.dimensions:
        when = one.title.partition(", where ")[2]
        rows.append([one.setting, one.spec["type"], _feasible(one), when])
    made.section("Search space").table(["parameter", "type", "values", "where"], rows)
    about = shown.about
    facts = {
        "algorithm": _named(about["algorithm"]),
        "early stopping": _named(about.get("early_stopping") or {"name": "none"}),
        "settings of a trial": _listed(about.get("trial_settings") or {}),
        "steps of a full trial": about.get("steps_per_trial"),
    }
    if about.get("warm_start"):
        facts["warm start"] = ", ".join(map(str, about["warm_start"]))
    made.facts({name: value for name, value in facts.items() if value not in (None, "")})


def _named(body: Body) -> str:
    """An algorithm or early-stopping rule with its settings."""
    settings = _listed({name: value for name, value in body.items() if name != "name" and value is not None})
    return f"{body['name']} ({settings})" if settings else str(body["name"])


def _listed(settings: Body) -> str:
    return ", ".join(f"{name} {told(value)}" for name, value in settings.items())


def _feasible(dimension: Dimension) -> str:
    spec = dimension.spec
    if not dimension.numeric:
        return ", ".join(dimension.choices)
    step = f" by {told(spec['step'])}" if spec.get("step") else ""
    return f"{told(spec['min'])} to {told(spec['max'])}{step}{', logarithmic' if spec.get('log') else ''}"
