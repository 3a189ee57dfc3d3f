"""Lists the code that carries, runs or shows results and decides none: it is in no code digest.

A carrier imports nothing that decides; an import-linter contract checks this. Only pages, KFP interfaces, engines and
what is in `CALLING` may import deciding code. Nothing imports pages and interfaces. If a carrier writes or measures
something that deciding code reads, that has a version in `FORMATS`.
"""

from gatehouse.store.manifest import FORMAT as MANIFEST_FORMAT

_COMPONENTS = "gatehouse.components"

LIBRARIES = {
    "gatehouse.errors": "Errors end a run; no artifact holds their words, which a test sees to.",
    "gatehouse.runtime.counting": "Writes a count with its noun.",
    "gatehouse.runtime.process": "Ties processes to the one that owns them.",
    "gatehouse.runtime.limits": "Says how much of its machine a process may use, which no result depends on.",
    "gatehouse.runtime.importing": "Imports libraries without what they only try.",
    "gatehouse.runtime.images": "Names the images that tasks run in.",
    "gatehouse.runtime.redaction": "Removes secrets from what is shown.",
    "gatehouse.configuration.yaml_lines": "Finds the line of a mistake in a YAML file.",
    "gatehouse.configuration.strict": "Refuses unknown keys, and truth values for numbers; it changes no value.",
    "gatehouse.configuration.duration": "Refuses all forms of a duration but one, whose meaning is pydantic's.",
    "gatehouse.configuration.cron": "Says when a schedule is due.",
    "gatehouse.configuration.schedule": "Says when a schedule is due.",
    f"{_COMPONENTS}.artifacts": "Stores bytes under their digest and reads them back verified.",
    f"{_COMPONENTS}.tracking": "Tells MLflow what happened, after it happened.",
    f"{_COMPONENTS}.reports": "Draws pages from artifacts.",
    f"{_COMPONENTS}.launchers": "Runs the training program somewhere, and tells whether it ended well.",
    f"{_COMPONENTS}.training.checkpointing": "Stores the state of a training and gives it back verified, bit for bit.",
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

APART = {
    "access": "Reaches a source, a database or the state of a study: credentials, leases, archives verified by digest.",
    "waits": "Says how long is waited, and how often something is tried again.",
}
"""Names of modules and folders that carry anywhere in `components` and, like the libraries, import nothing that
decides."""

ENGINES = {
    "beam": "Runs on Apache Beam what a stage also runs in its own process, byte for byte, which a test holds.",
}
"""Names of modules that carry anywhere in `components`: engines that run deciding functions in other images."""

CALLING = {
    "footprint": "Measures in a process of its own how much memory a model takes.",
    "refusal": "Words why something is refused, and tries what would help; all of it ends up in an error.",
}
"""Names of modules and folders that carry anywhere in `components` and call deciding functions.

Like engines, they import what they call. All of it is in the closure of every module that imports them; a test checks
this.
"""

FORMATS = {
    "gatehouse.errors": "1",
    "gatehouse.runtime.counting": "1",
    "gatehouse.configuration.duration": "1",
    "gatehouse.configuration.strict": "1",
    f"{_COMPONENTS}.artifacts.database": "1",
    f"{_COMPONENTS}.artifacts": MANIFEST_FORMAT,
    f"{_COMPONENTS}.training.checkpointing": "gatehouse/checkpoint/1",
    f"{_COMPONENTS}.tuning.access.journal": "1",
    f"{_COMPONENTS}.tracking.spool": "1",
    f"{_COMPONENTS}.tracking.latency": "1",
    f"{_COMPONENTS}.tracking.memory": "1",
    f"{_COMPONENTS}.evaluation.footprint": "1",
}
"""Version of what carriers write or measure and deciding modules read, by carrier.

It is in the key of the stages whose deciding modules import the carrier. Raise it when the same state gives another
text, the same query another answer, or the same model another measurement; a test asks for that whenever one of these
modules has another digest.
"""


_BY_NAME = IN_A_ROOM.keys() | APART.keys() | ENGINES.keys() | CALLING.keys()


def carries(module: str) -> bool:
    """Whether one of our modules carries, so that no result depends on its code."""
    if any(is_in(module, library) for library in LIBRARIES):
        return True
    if not module.startswith(f"{_COMPONENTS}."):
        return False
    return not _BY_NAME.isdisjoint(module.split(".")[3:])


def format_of(module: str) -> str:
    """The carrier in `FORMATS` that one of our modules is, or is in; empty for none."""
    return next((name for name in FORMATS if is_in(module, name)), "")


def is_in(module: str, package: str) -> bool:
    """Whether a module is a package, or is in it."""
    return module == package or module.startswith(f"{package}.")
