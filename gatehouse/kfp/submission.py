"""Submits compiled pipelines to KFP: the name of a version depends on its content, and that of a run on what it runs.

So repeating a command changes nothing, and an interrupted command continues where it stopped. Names for people begin
with the date of the first submission: an object with the same digest is found, and keeps its name.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from gatehouse.kfp_api.answers import Pipeline, Run, Version
from gatehouse.kfp_api.client import KfpApi
from gatehouse.kfp_api.specs import check_parameters, parts_of, upload_of, version_name
from gatehouse.store.canonical import canonical_json, sha256_bytes
from gatehouse.store.run import require_span

DIGITS = 12
"""Length of the digests in names of runs, recurring runs and versions."""


@dataclass(frozen=True)
class Upload:
    """A compiled pipeline of a project, in the form for KFP.

    Attributes:
        version_tags: Tags of the version: what it was compiled from and for.
        revision: Revision of the project in git; empty if it is in none.
        orders: The pipeline whose runs this one orders, which is uploaded with it.
    """

    project: str
    pipeline: str
    text: str
    version_tags: Mapping[str, str] = field(default_factory=dict)
    revision: str = ""
    orders: "Upload | None" = None
    date: str = field(default_factory=lambda: f"{datetime.now(UTC):%Y-%m-%d}")

    @property
    def name(self) -> str:
        """Name of the pipeline in KFP."""
        return f"{self.project}-{self.pipeline}"

    @cached_property
    def version(self) -> str:
        """Name of the version in KFP, by its content."""
        return version_name(self.text)

    @property
    def display_name(self) -> str:
        """Name of a new version for people: date, revision, and the beginning of its digest."""
        return " ".join(filter(None, [self.date, self.revision, self.version[: len("sha256-") + DIGITS]]))

    @cached_property
    def parts(self) -> dict[str, Any]:
        """Both specs in the form of KFP's answers: `pipeline_spec` and `platform_spec`."""
        spec, platform = parts_of(self.text)
        return {"pipeline_spec": spec, "platform_spec": platform}

    @property
    def spec(self) -> dict[str, Any]:
        """The pipeline spec."""
        spec: dict[str, Any] = self.parts["pipeline_spec"]
        return spec

    @property
    def description(self) -> str:
        """The description of the pipeline."""
        return str(self.spec["pipelineInfo"].get("description", ""))

    @property
    def tags(self) -> dict[str, str]:
        """Tags of the pipeline."""
        return {"project": self.project, "pipeline": self.pipeline}

    def without_cache(self) -> "Upload":
        """The same pipeline without caching: KFP ignores the cache setting of a run that is created from a version."""
        return replace(self, text=upload_of(self.parts, cache=False))

    def find(self, api: KfpApi) -> tuple[Pipeline | None, Version | None]:
        """The pipeline and the version in KFP; None for what does not exist."""
        pipeline = api.find_pipeline(self.name)
        return pipeline, api.find_version(pipeline.id, self.version) if pipeline else None

    def send(self, api: KfpApi) -> tuple[Pipeline, Version]:
        """Create the pipeline and the version in KFP if they do not exist, and return them."""
        if self.orders:
            self.orders.send(api)
        pipeline = api.pipeline(self.name, self.description, self.tags)
        return pipeline, api.upload_version(
            pipeline.id, self.text, self.description, self.version_tags, self.display_name
        )


@dataclass(frozen=True)
class Submission:
    """A requested run.

    Attributes:
        word: Part of the run's name besides the digest, such as the time window; empty for the date.
        attempt: Number of this run among equal submissions.
    """

    upload: Upload
    parameters: Mapping[str, Any] = field(default_factory=dict)
    experiment: str = "Default"
    service_account: str = ""
    plugins_input: Mapping[str, Any] = field(default_factory=dict)
    word: str = ""
    attempt: int = 1

    def __post_init__(self) -> None:
        check_parameters(self.upload.spec, self.parameters)
        require_span(self.parameters)

    @property
    def key(self) -> str:
        """The part of the name that equal submissions share, by the pipeline, its parameters and its place."""
        content = [
            self.upload.version,
            dict(self.parameters),
            self.experiment,
            self.service_account,
            dict(self.plugins_input),
        ]
        return sha256_bytes(canonical_json(content).encode())[:DIGITS]

    @property
    def run(self) -> str:
        """Name of the run, if it is new; KFP's list shows the pipeline beside it, and cuts long names."""
        words = f"{self.word or self.upload.date}, {self.key}"
        return f"{words}-{self.attempt}" if self.attempt > 1 else words

    def again(self, api: KfpApi) -> "Submission":
        """The first attempt of which KFP has no run."""
        submission = self
        while submission.find(api) is not None:
            submission = replace(submission, attempt=submission.attempt + 1)
        return submission

    def find(self, api: KfpApi) -> Run | None:
        """The newest run of this name in KFP, whichever day it was submitted, or None."""
        word, number = re.escape(self.word) or r"\d{4}-\d\d-\d\d", f"-{self.attempt}" if self.attempt > 1 else ""
        # Earlier releases began with the name of the pipeline.
        pattern = re.compile(rf"({re.escape(self.upload.name)}, )?{word}, {re.escape(self.key)}{number}")
        return next((run for run in api.runs(containing=self.key) if pattern.fullmatch(run.name)), None)

    def send(self, api: KfpApi, allowed: Callable[[], None] = lambda: None) -> Run:
        """The run in KFP, which is created with all that it needs if it does not exist.

        `allowed` is called just before the run is created, and raises if that is no longer allowed.
        """
        if run := self.find(api):
            return run
        pipeline, uploaded = self.upload.send(api)
        allowed()
        return api.create_run(
            self.run,
            pipeline.id,
            uploaded.id,
            self.parameters,
            self.experiment,
            description=self.upload.description,
            service_account=self.service_account,
            plugins_input=self.plugins_input,
        )


@dataclass(frozen=True)
class Change:
    """One line of a plan; its sign is `+` added, `~` changed, `-` removed, `=` unchanged, or `!` a notice."""

    sign: str
    what: str
    details: tuple[str, ...] = ()

    def __str__(self) -> str:
        """The lines for a person."""
        return "\n".join([f"  {self.sign} {self.what}", *(f"      {line}" for line in self.details)])


def planned(api: KfpApi, submission: Submission) -> Iterator[Change]:
    """The changes that `submission.send` would make; nothing is written."""
    for upload in filter(None, (submission.upload.orders, submission.upload)):
        pipeline, uploaded = upload.find(api)
        yield Change("=" if pipeline else "+", f"pipeline {upload.name}")
        yield Change("=" if uploaded else "+", f"version {(uploaded or upload).display_name} of {upload.name}")
    yield Change("=" if api.find_experiment(submission.experiment) else "+", f"experiment {submission.experiment}")
    run = submission.find(api)
    if run:
        yield Change("=", f"run {run.name}", (f"it is {run.state or 'not started'}",))
    else:
        parameters = tuple(f"{name}: {value}" for name, value in sorted(submission.parameters.items()))
        yield Change("+", f"run {submission.run}", parameters)


def summary(changes: list[Change]) -> str:
    """The last line of a plan."""
    added, changed, removed = (sum(change.sign == sign for change in changes) for sign in "+~-")
    if not added + changed + removed:
        return "Nothing to change."
    return f"{added} to add, {changed} to change, {removed} to delete."
