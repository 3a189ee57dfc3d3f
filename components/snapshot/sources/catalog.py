"""The kinds of sources: their specs in one union, and how each is opened."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.snapshot.sources.base import Source
from gatehouse.components.snapshot.sources.files import FolderSource, SdistSource

SourceSpec = Annotated[FolderSource | SdistSource, Field(discriminator="kind")]

_ADAPTER: TypeAdapter[SourceSpec] = TypeAdapter(SourceSpec)


def parse_source(body: Any) -> SourceSpec:
    """The spec in `body`, parsed JSON or YAML.

    Raises:
        pydantic.ValidationError: naming every key that is wrong.
    """
    return _ADAPTER.validate_python(body)


def parse_source_json(text: str) -> SourceSpec:
    """The spec in a JSON text. Raises pydantic.ValidationError."""
    return _ADAPTER.validate_json(text)


@contextmanager
def open_source(spec: SourceSpec, location: str, store: ArtifactStore) -> Iterator[Source]:
    """The source, opened until the end of the context.

    Args:
        spec: What to open.
        location: Read the files here instead; empty for the source's own place. Only files have another place.
        store: Its scratch space holds what is fetched once.
    """
    from gatehouse.components.snapshot.sources.file_reader import FileReader

    with store.workspace() as workspace:
        yield FileReader(spec, location, store, workspace)
