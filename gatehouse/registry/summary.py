"""Lists registered versions with their numbers, tags and who trained them."""

from gatehouse.registry.answers import provenance_of
from gatehouse.registry.explanation import Number, numbers_of
from gatehouse.registry.ledger import Ledger, model_names
from gatehouse.store.stage import StageModel
from gatehouse.store.store import ArtifactStore


class VersionSummary(StageModel):
    """A registered version, as a list shows it."""

    name: str
    version: int
    stage: str
    model: str
    by: str
    tags: dict[str, str]
    numbers: tuple[Number, ...]


def version_summaries(store: ArtifactStore, model_name: str = "") -> tuple[VersionSummary, ...]:
    """The versions of a model, or of all models for an empty name, the oldest first."""
    summaries = []
    for name in [model_name] if model_name else model_names(store):
        state = Ledger(store, name).state()
        for version in state.versions:
            summary = VersionSummary(
                name=name,
                version=version.version,
                stage=state.stage_of(version),
                model=version.model,
                by=str(provenance_of(store, version.model).get("by", "")),
                tags=dict(version.tags),
                numbers=numbers_of(store, version.evaluation),
            )
            summaries.append(summary)
    return tuple(summaries)
