"""The page of a materialization: what was written online, and how it differs from the offline features."""

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from gatehouse.online.materialization import Materialized
from gatehouse.online.skew import CORRECTED, EXPIRED, FRESH, LATE, RECENT, FeatureComparison, Skew
from gatehouse.online.stage import REPORT
from gatehouse.reports.page import Cell, Verdict, render
from gatehouse.store.store import ArtifactStore

_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
_SHOWN = 20
_KINDS = (FRESH, RECENT, CORRECTED, LATE, EXPIRED)


def page(store: ArtifactStore, reference: str) -> str:
    """The page of a materialization, as HTML."""
    return skew_page(store.manifest(reference).name, store.read_json(reference, REPORT))


def skew_page(service: str, body: Mapping[str, Any]) -> str:
    """The page of a feature service from the content of `skew.json`."""
    skew = Skew(tuple(FeatureComparison(**fields) for fields in body["compared"]))
    written = [Materialized(**fields) for fields in body["written"]]
    by_view = []
    for view in (table.view for table in written):
        own = [part for part in skew.compared if part.view == view]
        values = [sum(part.values for part in own if part.kind == kind) for kind in _KINDS]
        count = sum(part.differing for part in own)
        by_view.append([view, *values, sum(values), Cell(count, "bad" if count else "")])
    values_of = Counter[str]()
    for part in skew.compared:
        values_of[part.feature] += part.values
    bars = sorted(
        ((name, count / values_of[name]) for name, count in skew.differing.items()), key=lambda bar: (-bar[1], bar[0])
    )
    differing = sorted(
        (part for part in skew.compared if part.differing), key=lambda part: (-part.differing, part.feature)
    )
    return render(
        "online.html",
        f"Online store of {service}",
        f"as of {_moment(datetime.fromisoformat(body['as_of']))}",
        Verdict(
            "fail" if body["reasons"] else "pass",
            "\n".join(body["reasons"]) or "The served values are those of training.",
            unchecked=[f"{view}: no value of it was compared" for view in skew.unseen],
        ),
        tiles={
            "skew": f"{skew.share:.4%}",
            "allowed": f"{body['max_skew']:.4%}",
            "values compared": skew.values,
            "values differing": sum(skew.differing.values()),
            "rows to write": sum(table.rows for table in written),
        },
        kinds=list(_KINDS),
        by_view=by_view,
        unseen={index: "warn" for index, row in enumerate(by_view) if not row[-2]},
        bars=bars[:_SHOWN],
        differing=differing,
        written=written,
        time_of=lambda microseconds: _moment(_BEGINNING + timedelta(microseconds=microseconds)),
        freshness=body["freshness"],
    )


def _moment(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
