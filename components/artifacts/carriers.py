"""Lists the code that carries, runs or shows results and decides none: it is in no code digest.

A carrier imports nothing that decides; an import-linter contract checks this. Only pages, KFP interfaces and engines
may import deciding code: nothing imports pages and interfaces, and engines run what decides. If a carrier writes a
format that affects what is read back, the format has a version in `FORMATS`, which is in every code digest.
"""

from gatehouse.components.artifacts.manifest import FORMAT as MANIFEST_FORMAT

_COMPONENTS = "gatehouse.components"

LIBRARIES = {
    "gatehouse.errors": "Errors end a run; their words are for people.",
    "gatehouse.process": "Ties processes to the one that owns them.",
    "gatehouse.limits": "Says how much of its machine a process may use, which no result depends on.",
    "gatehouse.importing": "Imports libraries without what they only try.",
    "gatehouse.images": "Names the images that tasks run in.",
    "gatehouse.yaml_lines": "Finds the line of a mistake in a YAML file.",
    "gatehouse.duration": "Refuses all forms of a duration but one, whose meaning is pydantic's.",
    "gatehouse.rules_between_keys": "Finds further mistakes of what is refused anyway.",
    "gatehouse.cron": "Says when a schedule is due.",
    "gatehouse.schedule": "Says when a schedule is due.",
    f"{_COMPONENTS}.artifacts": "Stores bytes under their digest and reads them back verified.",
    f"{_COMPONENTS}.tracking": "Tells MLflow what happened, after it happened.",
    f"{_COMPONENTS}.reports": "Draws pages from artifacts.",
    f"{_COMPONENTS}.launchers": "Runs the training program somewhere, and tells whether it ended well.",
    f"{_COMPONENTS}.alerting": "Tells a webhook of verdicts.",
    f"{_COMPONENTS}.kfp_api": "Asks Kubeflow Pipelines for runs, versions and schedules.",
    f"{_COMPONENTS}.operations": "Says how runs ended and what they cost, after they ended.",
    f"{_COMPONENTS}.control": "Checks what a run needs before it starts, and ends it where a verdict says no.",
}
"""Packages that carry, each with the reason."""

IN_A_ROOM = {
    "component": "The KFP interface: it maps parameters to a request.",
    "report": "A page that is rendered from an artifact.",
    "reports": "Pages that are rendered from artifacts.",
}
"""Names of modules and folders that carry anywhere in `components`, each with the reason."""

REACHING = {
    "access": "Reaches a source or a database: credentials, and archives that are verified against a digest.",
}
"""Names of folders that carry anywhere in `components` and, like the libraries, import nothing that decides."""

ENGINES = {
    "beam": "Runs on Apache Beam what a stage also runs in its own process, byte for byte, which a test holds.",
}
"""Names of modules that carry anywhere in `components`: engines that run deciding functions.

They import what they run. All of it is in the closure of every module that imports them; a test checks this too.
"""

FORMATS = {"manifest": MANIFEST_FORMAT}
"""The formats that carriers write, by name."""


def carries(module: str) -> bool:
    """Whether one of our modules carries, so that no result depends on its code."""
    if any(module == library or module.startswith(f"{library}.") for library in LIBRARIES):
        return True
    if not module.startswith(f"{_COMPONENTS}."):
        return False
    return any(part in IN_A_ROOM or part in REACHING or part in ENGINES for part in module.split(".")[3:])
