"""The page of an evaluation on live outcomes: the verdict, the arms, and the differences with their intervals."""

import math

from gatehouse.registry.live_stage import FILE
from gatehouse.reports.format import number, percent
from gatehouse.reports.page import Cell, Verdict, render
from gatehouse.store.store import ArtifactStore

_WORDS = {"promote": "pass", "go on": "warn", "back": "fail"}


def page(store: ArtifactStore, reference: str) -> str:
    """The page of a live evaluation, as HTML."""
    manifest, body = store.manifest(reference), store.read_json(reference, FILE)
    arms = body["arms"]
    names = list(dict.fromkeys(name for arm in arms.values() for name in arm))
    differences, slices = list[list[object]](), list[list[object]]()
    for item in [*body["differences"], *body["slices"]]:
        low, high = item["low"], item["high"]
        mark = "" if low is None else "bad" if low > item["allowed"] else "good" if high <= item["allowed"] else ""
        interval = "" if low is None else f"{number(low)} to {number(high)}"
        cells = [item["name"], item["champion"], item["canary"], Cell(item["worse_by"], mark, interval)]
        row = [*cells, item["allowed"], item["units"], item["in_canary"]]
        (differences if len(differences) < len(body["differences"]) else slices).append(row)
    ratio = body["ratio"]
    wrong = ratio["evidence"] >= ratio["alarm"]
    return render(
        "live.html",
        f"Live outcomes of {manifest.name}",
        f"canary {manifest.name}:{body['canary']} beside champion {manifest.name}:{body['champion']}",
        Verdict(_WORDS[body["verdict"]], title=body["verdict"], reasons=body["reasons"]),
        tiles={
            "share of the canary": percent(body["canary_share"]),
            "rows with an outcome": body["facts"]["of these with an outcome"],
            "days": number(body["days"]),
            "evidence against the shares": Cell(f"{math.exp(min(ratio['evidence'], 99)):.3g}", "bad" if wrong else ""),
        },
        rows=[[name, *(arm.get(name) for arm in arms.values())] for name in names],
        arms=list(arms),
        differences=differences,
        slices=slices,
        facts={**body["facts"], "ledger records": body["records"], "files of the log": body["files"]}
        | {"shares": ", ".join(map(percent, body["shares"])), "log": manifest.derived_from["log"]},
    )
