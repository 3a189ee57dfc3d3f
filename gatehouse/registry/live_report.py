"""The page of an evaluation on live outcomes: the verdict, the arms, and the differences with their intervals."""

import math
from dataclasses import replace

from gatehouse.registry.alignment import correlation, past_candidates
from gatehouse.registry.ledger import CANARY, CHAMPION, Ledger
from gatehouse.registry.live_stage import FILE
from gatehouse.reports.format import number, percent
from gatehouse.reports.page import Cell, Verdict, render
from gatehouse.store.store import ArtifactStore

_WORDS = {"promote": "pass", "go on": "warn", "back": "fail"}
_FIRST = ("rows", "keys", "outcomes", "failed rows", "latency p50, ms", "latency p99, ms")


def _place(name: str) -> tuple[int, str]:
    return (_FIRST.index(name) if name in _FIRST else len(_FIRST), name)


def _cell(value: float | None) -> Cell:
    return Cell(value if value is None else number(value), "n")


def page(store: ArtifactStore, reference: str) -> str:
    """The page of a live evaluation, as HTML."""
    manifest, body = store.manifest(reference), store.read_json(reference, FILE)
    arms = {
        arm: body["arms"][arm] for arm in sorted(body["arms"], reverse=True, key=lambda arm: (arm == CHAMPION, arm))
    }
    names = sorted({name for arm in arms.values() for name in arm}, key=_place)
    differences, slices = list[list[object]](), list[list[object]]()
    for item in [*body["differences"], *body["slices"]]:
        low, high = item["low"], item["high"]
        mark = "" if low is None else "bad" if low > item["allowed"] else "good" if high <= item["allowed"] else ""
        interval = "" if low is None else f"{number(low)} to {number(high)}"
        cells = [item["name"], item["champion"], item["canary"], Cell(item["worse_by"], mark, interval)]
        row = [*cells, item["allowed"], item["units"], item["in_canary"]]
        (differences if len(differences) < len(body["differences"]) else slices).append(row)
    # Other candidates that the ledger knew before this evaluation, so that the page stays as it is.
    state, canary = Ledger(store, manifest.name).state(), manifest.derived_from[CANARY]
    until = next((at for at, live in state.live if live.evaluation == reference), state.size + 1)
    others = tuple((at, live) for at, live in state.live if at < until and live.canary != canary)
    past = past_candidates(store, replace(state, live=others))
    compared = [item["name"] for item in body["differences"]]
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
            "days": f"{body['days']:.1f}",
            "evidence against the shares": Cell(f"{math.exp(min(ratio['evidence'], 99)):.3g}", "bad" if wrong else ""),
        },
        rows=[[name, *(_cell(arm.get(name)) for arm in arms.values())] for name in names],
        arms=list(arms),
        differences=differences,
        slices=slices,
        correlations=[[name, str(correlation(past, name))] for name in compared],
        compared=compared,
        past=[[f"{manifest.name}:{item.version}", item.offline, *map(item.live.get, compared)] for item in past],
        facts={**body["facts"], "ledger records": body["records"], "files of the log": body["files"]}
        | {"shares": ", ".join(map(percent, body["shares"])), "log": manifest.derived_from["log"]},
    )
