"""The page that explains the verdict of a leakage check."""

from collections.abc import Mapping
from typing import Any

from gatehouse.features.leakage.stage import REPORT
from gatehouse.reports.page import Verdict, render
from gatehouse.runtime.plural import counted
from gatehouse.store.store import ArtifactStore

_SHOWN = 20


def page(store: ArtifactStore, reference: str) -> str:
    """The page of a leakage report, as HTML."""
    return leakage_page(store.manifest(reference).name, store.read_json(reference, REPORT))


def leakage_page(service: str, body: Mapping[str, Any]) -> str:
    """The page of a feature service from the content of `leakage.json`."""
    differences, views, marks = body["differences"], [], {}
    for index, (name, status) in enumerate(body["views"].items()):
        compared = [cut["views"][name] for cut in body["cuts"] if name in cut["views"]]
        differing = sorted({row["feature"] for row in differences if row["view"] == name})
        views.append([name, status, len(compared), sum(compared), ", ".join(differing)])
        if differing or status == "not checked":
            marks[index] = "bad" if differing else "warn"
    columns = ("where", "view", "feature", "cut", "rows", "first", "stored", "replayed")
    keys = [", ".join(f"{name}={value}" for name, value in row["first"].items()) for row in differences]
    cuts, warnings = body["cuts"], body["warnings"]
    unchecked = [f"{name}: {status}" for name, status in body["views"].items() if status != "replayed"]
    if body["reasons"]:
        stamp = "correct what is named, so that each row is stamped with the moment when its values were known."
        todo = stamp if differences else "do what the last sentence of each reason says."
        verdict = Verdict("fail", "\n".join(body["reasons"]), (), warnings, unchecked, todo)
    else:
        of_views, of_set = sum(sum(cut["views"].values()) for cut in cuts), sum(cut["rows"] for cut in cuts)
        sentence = (
            f"No compared value was used before it was known: {counted(of_views, 'row')} of views and "
            f"{of_set:,} of the training set's {counted(body['rows'], 'row')}, at {counted(len(cuts), 'cut')}."
        )
        verdict = Verdict("warn" if warnings else "pass", sentence, (), warnings, unchecked)
    areas = sorted(body["single_feature_auc"].items(), key=lambda item: (-item[1], item[0]))
    return render(
        "leakage.html",
        f"Leakage check of {service}",
        verdict=verdict,
        body=body,
        views=views,
        marks=marks,
        differences=[
            [first if column == "first" else row[column] for column in columns]
            for row, first in zip(differences, keys, strict=True)
        ],
        areas=areas,
        shown=_SHOWN,
        alarms={index: "bad" for index, (_, area) in enumerate(areas) if area > body["alarm"]},
    )
