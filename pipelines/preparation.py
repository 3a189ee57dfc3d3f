"""The first task of a pipeline: it checks the configuration, and hands each stage its nonce."""

from collections.abc import Sequence
from typing import Any

from gatehouse.pipelines.interfaces import component_from

_PREPARE = """
def prepare(
    store: str,
    force: str,
    stages: list,
    configs: list,
    cause: str = "",
    model_name: str = "",
    since: str = "",
    until: str = "",
) -> NamedTuple("Outputs", {outputs}):
    \"\"\"Check that this store holds the configuration, and say which stages must run whatever the memo holds.

    Args:
        store: Address of the artifact store.
        force: Names of stages, with an optional nonce; empty for none.
        stages: Every stage that can be forced.
        configs: References of the configuration that the tasks of the run read.
        cause: The order of monitoring that the run trains for; empty for none.
        model_name: Name under which models are registered.
        since: Start of the span that the run is for (ISO 8601 with zone); empty for none.
        until: Its end; empty for none.
    \"\"\"
    from gatehouse.components.artifacts.store import ArtifactStore
    from gatehouse.components.control.preparing.stage import PrepareRequest
    from gatehouse.components.control.preparing.stage import prepare as check

    given = {{"cause": cause, "model_name": model_name, "since": since, "until": until}}
    request = PrepareRequest(force=force, stages=tuple(stages), configs=tuple(configs), **given)
    nonces = check(request, ArtifactStore.open(store)).nonces
    return tuple(nonces.get(name, "") for name in stages)
"""


def prepare_component(stages: Sequence[str]) -> Any:
    """The first task of a pipeline, with one output a stage: the nonce of that stage alone.

    KFP copies the source of a component with its output types written out, and a task whose inputs did not change may
    come from KFP's cache. So each stage needs an output of its own, and the source is written for the stages there are.

    Args:
        stages: Every stage that can be forced, in the order of the outputs.
    """
    source = _PREPARE.format(outputs=[(name, str) for name in stages]).replace("<class 'str'>", "str")
    return component_from("prepare", source)
