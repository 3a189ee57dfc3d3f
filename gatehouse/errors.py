"""Every error that a user of Gatehouse can act on.

A message names the thing, what was expected, what was found and what to do. `exit_code` is the exit code of
`gatehouse run` if the error ends a run. A `permanent` error would occur again in every attempt with the same request,
so a second attempt of a task does no work (see `RepeatedError`).
"""


class GatehouseError(Exception):
    """Base of all errors that Gatehouse raises on purpose."""

    exit_code = 1
    permanent = False
    reasons: tuple[str, ...] = ()
    """The reasons, one by one, where a component gives them as a verdict."""


class StoppedError(GatehouseError):
    """A signal ended the work; the request itself is not wrong."""


def is_interruption(error: Exception) -> bool:
    """Whether an error is DuckDB's message for a signal during a query."""
    return isinstance(error, RuntimeError) and "interrupted" in str(error).lower()


class OutOfMemoryError(GatehouseError):
    """The work needs more memory than this process may use; with more memory, or less other work, it can succeed."""


class HiddenValueError(GatehouseError):
    """An unexpected error whose words may quote a row, and are not shown, as columns of the data are sensitive."""


class PredictionError(GatehouseError):
    """A model gave numbers that are no predictions of its task."""

    permanent = True


class RepeatedError(GatehouseError):
    """An earlier attempt at the same task found a permanent error; `name` is its class."""

    permanent = True

    def __init__(self, message: str, name: str, exit_code: int) -> None:
        super().__init__(message)
        self.name = name
        self.exit_code = exit_code


class ConfigurationError(GatehouseError):
    """The project or the command line is wrong; of a project, the message lists every problem, with file and key."""

    exit_code = 4
    permanent = True


class InvalidReferenceError(GatehouseError):
    """A string is not a reference of the form `<kind>/<name>/sha256-<64 hex>`."""

    exit_code = 4
    permanent = True


class MissingArtifactError(GatehouseError):
    """A reference names an artifact that the store does not hold."""


class CorruptArtifactError(GatehouseError):
    """Stored bytes are missing, short or altered: they do not match the digest that names them."""

    permanent = True


class InvalidManifestError(CorruptArtifactError):
    """A manifest cannot be read, or one of its fields is no valid path, digest, suffix or identity."""


class StoreError(GatehouseError):
    """The store cannot be opened, read or written (no such place, no permission, disk full)."""


class WrongImageError(GatehouseError):
    """The image of a worker holds other code than the image of the task that launched it."""

    permanent = True


class PieceError(GatehouseError):
    """A piece of a stage failed, its workers were killed, or the engine that should run it does not."""


class StageResultError(GatehouseError):
    """A stage returned a reference that does not exist or does not verify."""

    permanent = True


class ContractBreachError(GatehouseError):
    """The data breaks its contract: the run ends before anything is trained."""

    exit_code = 2
    permanent = True


class SourceError(GatehouseError):
    """A raw source cannot be read: it is missing, differs from its pinned digest, or has an invalid value."""


class DeclarationError(SourceError):
    """A source, or a file on the command line, is not what it is declared as.

    There is no such file or topic, it has another form, its rows do not fit, or a variable of the environment that it
    names is not set.
    """

    exit_code = 4


class MisfitError(DeclarationError):
    """A row does not fit its declaration; the message names its place, column and value."""


class NoRowsError(DeclarationError):
    """A table has no rows."""


class DeliveryError(SourceError):
    """A guard of the source refuses the delivered data; the message names the guard."""

    permanent = True


class LeakageError(GatehouseError):
    """A training set or split lets the future or the label reach the model."""

    exit_code = 2
    permanent = True


class VerdictError(GatehouseError):
    """A verdict is not pass, and a run requires it."""

    exit_code = 2
    permanent = True


class LauncherError(GatehouseError):
    """A training job did not succeed."""


class LaunchError(ConfigurationError, LauncherError):
    """The settings of `launch`, which are in no key, do not fit the training."""


class ErasedArtifactError(GatehouseError):
    """An artifact's data was removed on request; the message names the record."""

    permanent = True
