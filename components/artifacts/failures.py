"""What the record of a run says of an error that ended a stage."""

from typing import Any

from gatehouse.components.artifacts.atomic_file import disk_full
from gatehouse.components.artifacts.database import out_of_memory
from gatehouse.errors import GatehouseError, RepeatedError, StoppedError, is_interruption
from gatehouse.redaction import redacted


def failure_of(error: Exception) -> dict[str, Any]:
    """The fields of an error in the record of a failure."""
    said = redacted(str(error))
    if not isinstance(error, GatehouseError):
        return {"error": type(error).__name__, "message": said, "exit_code": 1, "permanent": False, "unexpected": True}
    name = error.name if isinstance(error, RepeatedError) else type(error).__name__
    return {"error": name, "message": said, "exit_code": error.exit_code, "permanent": error.permanent}


def explained(error: Exception) -> Exception:
    """A full disk, full memory, or a signal during a query as an error in words; other errors unchanged."""
    if known := disk_full(error) or out_of_memory(error):
        return known
    if is_interruption(error):
        return StoppedError("A signal stopped the run while a query ran. Run again: what was finished is kept.")
    return error
