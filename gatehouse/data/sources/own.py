"""Sources of a project's own: code of the project reads the tables, named as `package.module:name`."""

from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from typing import Any, Literal

from pydantic import Field, field_validator

from gatehouse.data.snapshot.spec import SourceBase, TableSpec
from gatehouse.data.sources.base import Source, without_password
from gatehouse.store.builder_code import BuilderError


class OwnSource(SourceBase):
    """Tables that a reader of the project's own reads; credentials come from the environment."""

    kind: Literal["own"] = Field("own", description="What the source is.")
    reader: str = Field(
        pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$",
        description="`package.module:name` of a class or function that takes this declaration and gives the `Source`.",
    )
    options: dict[str, bool | int | float | str] = Field({}, description="Settings of the reader, without passwords.")
    tables: dict[str, TableSpec] = Field(min_length=1, description="The raw tables, by name.")

    @field_validator("options")
    @classmethod
    def _without_passwords(cls, options: dict[str, Any]) -> dict[str, Any]:
        return {name: without_password(value) if isinstance(value, str) else value for name, value in options.items()}


def open_own(spec: OwnSource) -> AbstractContextManager[Source]:
    """The source that the project's reader gives, closed at the end of the context if it can be.

    Raises BuilderError if the reader cannot be imported, or gives no `Source`.
    """
    module, _, name = spec.reader.partition(":")
    try:
        source = getattr(import_module(module), name)(spec)
    except (ImportError, AttributeError) as error:
        raise BuilderError(f"source.reader: {spec.reader} cannot be imported or called: {error}.") from error
    if not (callable(getattr(source, "state", None)) and callable(getattr(source, "parts", None))):
        raise BuilderError(
            f"source.reader: expected {spec.reader} to give an object with the methods state and parts, found "
            f"{type(source).__name__}. gatehouse/data/sources/base.py says what they do."
        )
    opened: AbstractContextManager[Source] = source if hasattr(source, "__exit__") else nullcontext(source)
    return opened
