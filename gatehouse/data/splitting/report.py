"""The page of a split: its checks, parts with the level of labels and times, and folds."""

from collections.abc import Mapping, Sequence
from typing import Any

from gatehouse.data.splitting.divide import PARTS
from gatehouse.reports.page import Cell, Verdict, render
from gatehouse.store.store import ArtifactStore

Json = Mapping[str, Any]

_SIGNS = {
    "passed": Cell("✓\u00a0passed", "good"),
    "failed": Cell("✕\u00a0failed", "bad"),
    "noted": Cell("✕\u00a0noted", "soft"),
    "could not run": Cell("?\u00a0could not run", "warn"),
}
_SENTENCES = 4


def page(store: ArtifactStore, reference: str) -> str:
    """The page of a split, as HTML; `reference` names its checks (`split-checks`)."""
    manifest, body = store.manifest(reference), store.read_json(reference, "checks.json")
    checks = []
    for check in body["checks"]:
        severity = "note" if check["status"] == "could not run" and not check["required"] else check["severity"]
        rest = len(check["messages"]) - _SENTENCES
        sentences = [*check["messages"][:_SENTENCES], *([f"and {rest} more, in checks.json"] if rest > 0 else [])]
        checks.append([_SIGNS[check["status"]], check["name"], severity, "; ".join(sentences)])
    settings = {name: value for name, value in manifest.configuration.items() if name != "checks"}
    return render(
        "split.html",
        f"Split of {manifest.name}",
        f"{body['rows']:,} rows, strategy {manifest.configuration['strategy']}",
        _verdict(body["checks"]),
        checks=checks,
        parts={name: body["parts"][name] for name in PARTS},
        body=body,
        inputs={"training set": manifest.derived_from["training_set"]}
        | {name: str(value) for name, value in settings.items() if value not in (None, "", [], {})},
    )


def refusal(name: str, reasons: Sequence[str]) -> str:
    """The page of a table that is not divided, as HTML."""
    return render("report.html", f"Split of {name}", "", Verdict("fail", "The rows are not divided.", reasons))


def _verdict(checks: Sequence[Json]) -> Verdict:
    def sentences(status: str) -> list[str]:
        return [f"{check['name']}: {why}" for check in checks if check["status"] == status for why in check["messages"]]

    noted = ", ".join(check["name"] for check in checks if check["status"] == "noted")
    also = f" Noted only: {noted}." if noted else ""
    if warnings := sentences("failed"):
        todo = "`split.checks` has the limits and the severity of each check."
        text = f"The rows are divided, and checks found what may leak.{also}"
        return Verdict("warn", text, warnings, unchecked=sentences("could not run"), todo=todo)
    text = f"Every check that counts and could run has passed.{also}"
    return Verdict("pass", text, unchecked=sentences("could not run"))
