"""Tags of pipelines and versions in KFP, for filtering lists."""

from gatehouse.kfp.compilation.specification import Compiled
from gatehouse.store.canonical import digest_of

_LONGEST = 63
"""Maximum number of characters of a key and of a value in KFP 2.17."""
_SHORT = 16


def tags_of(compiled: Compiled) -> dict[str, str]:
    """The tags of a version: what it was compiled from and for, and digests of its code and of the whole spec.

    Versions with the same `code` run the same code; versions with the same `spec` are the same pipeline, whichever
    version of the SDK wrote them. No key contains a dot, because KFP refuses dots.
    """
    code = {task.path: task.constants["code"] for task in compiled.leaves if "code" in task.constants}
    tags = compiled.stamp | {"code": digest_of(code)[:_SHORT], "spec": content_digest(compiled)[:_SHORT]}
    return {key: value[:_LONGEST] for key, value in tags.items()}


def content_digest(compiled: Compiled) -> str:
    """Digest of the spec's content, without the version of the SDK that wrote it."""
    spec = {key: value for key, value in compiled.spec.items() if key != "sdkVersion"}
    return digest_of([spec, compiled.platform])
