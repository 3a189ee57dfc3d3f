"""The page of the integration suite: the requests to a candidate as in serving, and its answers."""

from gatehouse.evaluation.integration.spec import FILE, reasons_of
from gatehouse.reports.page import Verdict, render
from gatehouse.store.store import ArtifactStore


def page(store: ArtifactStore, reference: str) -> str:
    """The page of an integration suite, as HTML."""
    manifest, checks = store.manifest(reference), store.read_json(reference, FILE)
    texts = reasons_of(checks)
    verdict = Verdict(manifest.details["verdict"], reasons=texts["reasons"], unchecked=texts["warnings"])
    subtitle = "asked in a process that has only the store"
    title = f"Integration of {manifest.name}"
    return render("integration.html", title, subtitle, verdict, checks=checks, inputs=manifest.derived_from)
