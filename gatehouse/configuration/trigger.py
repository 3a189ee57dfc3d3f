"""A trigger of a project: events that start a run of a pipeline, its parameters, and how often it may run.

An event is a CloudEvent as a dictionary: `id`, `source`, `type`, `subject`, `time` and `data`.
"""

import re
from collections.abc import Mapping
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Any

from pydantic import Field, model_validator

from gatehouse.configuration.strict import Duration, Strict
from gatehouse.errors import ConfigurationError

_FIELD = re.compile(r"\{(id|source|type|subject|time|data(?:\.[^{}.]+)+)\}")
_LONGEST = 1000


class Trigger(Strict):
    """Which events start a run of a pipeline. In patterns, `*` stands for any text, and `?` for a character."""

    pipeline: str = Field(
        "", pattern=r"^[a-z_]*$", description="The pipeline; empty for the one with the trigger's name."
    )
    type: str = Field(min_length=1, description="Pattern of the event's type.")
    source: str = Field("*", min_length=1, description="Pattern of the event's source.")
    subject: str = Field("*", min_length=1, description="Pattern of the event's subject.")
    parameters: dict[str, Any] = Field(
        {},
        description="Values of the pipeline's parameters; `{subject}`, `{time}`, `{data.bucket}` and other fields of "
        "the event take their place in texts.",
    )
    debounce: Duration = Field(
        timedelta(0),
        description="Events this long after the first one, at most a day, join its run, which starts then.",
    )
    per_day: int = Field(24, ge=1, le=1000, description="Most runs of a day, in UTC; further events wait for the next.")
    enabled: bool = Field(True, description="Whether the trigger is on.")

    @model_validator(mode="after")
    def _keeps_places(self) -> "Trigger":
        if "store" in self.parameters or _FIELD.search(str(self.parameters.get("source", ""))):
            raise ValueError("parameters: expected no store, and a source without fields: no event chooses a place")
        texts = [value for value in self.parameters.values() if isinstance(value, str)]
        if unknown := [name for text in texts for name in re.findall(r"\{[^{}]*\}", _FIELD.sub("", text))]:
            expected = "{id}, {source}, {type}, {subject}, {time}, or {data.NAME}"
            raise ValueError(f"parameters: expected the fields {expected}, found {', '.join(unknown)}")
        if not timedelta(0) <= self.debounce <= timedelta(days=1):
            raise ValueError(f"debounce: expected at most a day, found {self.debounce}")
        return self

    def matches(self, event: Mapping[str, Any]) -> bool:
        """Whether an event starts a run."""
        patterns = {"type": self.type, "source": self.source, "subject": self.subject}
        return self.enabled and all(fnmatchcase(event.get(name) or "", pattern) for name, pattern in patterns.items())

    def filled(self, event: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters of the run for an event. Raises ConfigurationError if the event lacks a field."""

        def field(match: re.Match[str]) -> str:
            value: Any = event
            for name in match[1].split("."):
                value = value.get(name) if isinstance(value, Mapping) else None
            text = "" if value is None or isinstance(value, Mapping | list) else str(value)
            if not (text and text.isprintable() and len(text) <= _LONGEST):
                raise ConfigurationError(
                    f"The event lacks {match[1]}, which the trigger puts into a parameter: expected a text of a line."
                )
            return text

        return {
            name: _FIELD.sub(field, value) if isinstance(value, str) else value
            for name, value in self.parameters.items()
        }
