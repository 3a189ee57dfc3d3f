"""The page of the integration suite: what a candidate was asked as serving asks, and what it answered."""

from gatehouse.evaluation.integration.spec import FILE, reasons_of
from gatehouse.reports.page import Report, Verdict
from gatehouse.store.store import ArtifactStore


def page(store: ArtifactStore, reference: str) -> str:
    """The page of an integration suite, as HTML.

    Args:
        store: Where the artifact is.
        reference: Of the suite's artifact.
    """
    manifest, checks = store.manifest(reference), store.read_json(reference, FILE)
    told = reasons_of(checks)
    verdict = Verdict(manifest.details["verdict"], reasons=told["reasons"], unchecked=told["warnings"])
    drawn = Report(f"Integration of {manifest.name}", "asked in a process that has the store alone", verdict)
    drawn.section("Checks").table(
        ["check", "verdict", "found"], [[each["check"], each["verdict"], each["found"]] for each in checks]
    )
    drawn.section("Made from").facts({role.replace("_", " "): made for role, made in manifest.derived_from.items()})
    return drawn.html()
