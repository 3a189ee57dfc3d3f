"""Rules about the texts in a spec: descriptions and names for people, ASCII, sizes, no secrets."""

import json
import re
from collections.abc import Iterator
from typing import Any

from gatehouse.kfp.compilation.rules.rule import rule
from gatehouse.kfp.compilation.specification import Compiled

_MOST_BYTES = 16 * 1024
_SECRETS = re.compile(
    r"password|passwd|secret_key|access_key|api_key|BEGIN [A-Z ]*PRIVATE KEY|\bAKIA[0-9A-Z]{16}\b"
    r"|://[^/\s:@]+:[^/\s@]+@",
    re.IGNORECASE,
)


@rule("artifacts-described", "who only sees the KFP UI knows an artifact by its description alone")
def artifacts_described(compiled: Compiled) -> Iterator[str]:
    """Every output artifact of a task has a description."""
    for task in compiled.leaves:
        artifacts = task.component.get("outputDefinitions", {}).get("artifacts", {})
        for name, artifact in artifacts.items():
            if not artifact.get("description"):
                yield f"task {task.path}: its artifact {name} has no description (`Returns:` of component.py)"


@rule("inputs-described", "the form in the KFP UI shows names, and says what they mean only where they are described")
def inputs_described(compiled: Compiled) -> Iterator[str]:
    """Every parameter of a run has a description."""
    for name, parameter in compiled.inputs.items():
        if not parameter.get("description"):
            yield f"its parameter {name} has no description (`Args:` of the pipeline)"


@rule("display-name", "the graph in the KFP UI shows these names, and those of functions say little")
def display_name(compiled: Compiled) -> Iterator[str]:
    """Every task, and every group of tasks, has a name for people."""
    for task in compiled.tasks:
        shown = task.body.get("taskInfo", {}).get("name", "")
        if shown in ("", task.name):
            yield f"task {task.path}: has no display name"


@rule("ascii", "KFP may keep specs in a database that cannot hold every other character")
def ascii_only(compiled: Compiled) -> Iterator[str]:
    """A spec contains only ASCII, also in escapes."""
    text = json.dumps([compiled.spec, compiled.platform], ensure_ascii=False)
    if not (compiled.text.isascii() and text.isascii()):
        wrong = next(character for character in compiled.text + text if not character.isascii())
        yield f"is not ASCII: holds {wrong!a}"


@rule("size", "all parameters of a task are one argument of its process, which Linux ends at 128 KiB")
def size(compiled: Compiled) -> Iterator[str]:
    """Constants are short; longer values are passed as references."""
    for where, value in _values(compiled):
        if (length := len(_text(value).encode())) > _MOST_BYTES:
            yield f"{where}: {length} bytes, expected at most {_MOST_BYTES}"


@rule("secrets", "who may read a spec, or a run, may read every value in it; secrets reach pods as Kubernetes secrets")
def secrets(compiled: Compiled) -> Iterator[str]:
    """No value looks like a secret."""
    for where, value in _values(compiled):
        if found := _SECRETS.search(_text(value)):
            # Report only the matched word, not the text after it.
            yield f"{where}: holds {found.group(0).partition('://')[0]!r}, which a secret does"


def _values(compiled: Compiled) -> Iterator[tuple[str, Any]]:
    """Every value that the spec fixes, with its location."""
    for name, parameter in compiled.inputs.items():
        yield f"the default of {name}", parameter.get("defaultValue", "")
    for task in compiled.tasks:
        for name, value in task.constants.items():
            yield f"task {task.path}: {name}", value
        for variable in task.container.get("env", []):
            yield f"task {task.path}: the variable {variable['name']}", variable.get("value", "")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
