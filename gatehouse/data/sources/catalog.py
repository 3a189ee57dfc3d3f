"""The kinds of sources: their specs in one union, and how each is opened."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Annotated, Any

from pydantic import ConfigDict, Field, TypeAdapter

from gatehouse.data.sources.base import Source
from gatehouse.data.sources.files import FolderSource, SdistSource
from gatehouse.data.sources.kafka import KafkaReader, KafkaSource
from gatehouse.data.sources.lakehouse import DeltaReader, DeltaSource, IcebergReader, IcebergSource
from gatehouse.data.sources.own import OwnSource, open_own
from gatehouse.data.sources.sql import SqlReader, SqlSource
from gatehouse.errors import DeclarationError
from gatehouse.store.store import ArtifactStore

SourceSpec = Annotated[
    FolderSource | SdistSource | SqlSource | DeltaSource | IcebergSource | KafkaSource | OwnSource,
    Field(discriminator="kind"),
]

_READERS: dict[type, Callable[[Any], AbstractContextManager[Source]]] = {
    SqlSource: SqlReader,
    DeltaSource: DeltaReader,
    IcebergSource: IcebergReader,
    KafkaSource: KafkaReader,
    OwnSource: open_own,
}
# A refused URL may hold a password.
_ADAPTER: TypeAdapter[SourceSpec] = TypeAdapter(SourceSpec, config=ConfigDict(hide_input_in_errors=True))


def parse_source(body: Any) -> SourceSpec:
    """The spec in `body`, parsed JSON or YAML. Raises pydantic.ValidationError naming every key that is wrong."""
    return _ADAPTER.validate_python(body)


@contextmanager
def open_source(spec: SourceSpec, location: str, store: ArtifactStore) -> Iterator[Source]:
    """The source, opened until the end of the context; files may be read at another `location`.

    Raises SourceError if a place is given to what is not files, or an environment variable that it names is not set.
    """
    if isinstance(spec, FolderSource | SdistSource):
        from gatehouse.data.sources.file_reader import FileReader

        with store.workspace() as workspace:
            yield FileReader(spec, location, store, workspace)
        return
    if location:
        raise DeclarationError(
            f"Source {spec.name}: --source replaces only the folder or archive of a source of files, and this source "
            f"is of kind {spec.kind}. Leave --source out."
        )
    with _READERS[type(spec)](spec) as reader:
        yield reader
