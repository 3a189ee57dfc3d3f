"""What each word means by which Kubeflow Pipelines says the state of a run, a task or a group."""

from typing import Literal

Meaning = Literal["succeeded", "failed", "stopped", "not ended", "unknown"]

_MEANINGS: dict[str, Meaning] = {
    # A run, in the API.
    "PENDING": "not ended",
    "RUNNING": "not ended",
    "PAUSED": "not ended",
    "CANCELING": "not ended",
    "SUCCEEDED": "succeeded",
    "SKIPPED": "succeeded",
    "FAILED": "failed",
    "CANCELED": "stopped",
    # The group of an exit handler. On a cluster its task gets ML Metadata's word, with kfp.local SUCCEEDED or FAILED.
    # A group that was terminated is RUNNING for ML Metadata.
    "COMPLETE": "succeeded",
    "CACHED": "succeeded",
    "NEW": "not ended",
    # Ours: the process of a run is gone.
    "KILLED": "stopped",
}


def meaning_of(state: str) -> Meaning:
    """What a state means; `unknown` for a word that no release of KFP 2 is known to say."""
    return _MEANINGS.get(state, "unknown")
