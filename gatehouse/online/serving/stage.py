"""The stage that reads the features of a training set from the online store and compares them with the offline values.

It is part of the integration suite of a candidate: serving must give the model the values that it was trained on.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from gatehouse.store.canonical import canonical_json
from gatehouse.store.declaration import CONTENTS, Effects, Resources
from gatehouse.store.stage import StageModel, stage
from gatehouse.store.store import ArtifactStore

if TYPE_CHECKING:
    from gatehouse.features.definitions.repository import View
    from gatehouse.online.standing import Standing
    from gatehouse.online.store import OnlineStore

FILE = "online.json"
Verdict = Literal["pass", "fail", "not checked"]


class CompareOnlineRequest(StageModel):
    """A training set whose feature service is read online.

    Attributes:
        training_set: Reference of the training set.
        max_skew: Share of differing values above which the verdict is fail.
    """

    training_set: str
    max_skew: float = 0.0


class CompareOnlineResult(StageModel):
    """The comparison, its verdict, the reasons (differences, views left out), and the number of values compared."""

    comparison: str
    verdict: Verdict
    reasons: tuple[str, ...]
    values: int


@stage(
    "compare_online",
    title="Compare online features",
    effects=Effects(reads="the online store", why="The online store changes without any parameter changing."),
    resources=Resources(cpu="2", memory="4G", minutes=30),
    pages={"online-comparisons": CONTENTS},
    section="integration",
)
def compare_online(request: CompareOnlineRequest, store: ArtifactStore) -> CompareOnlineResult:
    """Compare a sample of the online store with the offline values; `online.json` has the result by view.

    The verdict is `not checked`, with the reason, if the online store is not set up or cannot be reached, if it holds
    no view of the training set's service, or if the feature tables that were written are not here. A view that is being
    written, or was pushed from another machine, is left out, with the reason; if all views are left out, the verdict is
    `not checked` too.
    """
    from gatehouse.errors import MissingArtifactError, StoreError
    from gatehouse.features.definitions.repository import check_out
    from gatehouse.online.standing import standing_skew

    manifest = store.manifest(request.training_set)
    inputs, service = manifest.derived_from, str(manifest.configuration["service"])
    tables, learned = inputs["feature_tables"], inputs["definitions"]
    project = store.manifest(tables).name
    with store.workspace() as workspace:
        repository = check_out(store, learned, workspace / "feature_repo")
        views = [repository.views[name] for name in repository.service(service).views]
        found: list[Standing] = []
        verdict: Verdict
        reasons: tuple[str, ...]
        try:
            online = _opened(store, project, repository.folder, views)
            written = {online.state(view.name).tables or tables for view in views}
            if reasons := tuple(_unlike(store, service, learned, written)):
                verdict = "fail"
            else:
                found = list(standing_skew(store, online, project, views, tables))
                differing = tuple(_differing(found, request.max_skew))
                left_out = tuple(each.left_out for each in found if each.left_out)
                verdict = "fail" if differing else "not checked" if len(left_out) == len(found) else "pass"
                reasons = (*differing, *left_out)
        except (MissingArtifactError, StoreError) as error:
            verdict, reasons = "not checked", (str(error),)
    values = sum(each.skew.values for each in found)
    comparison = store.publish(
        "online-comparisons",
        service,
        {FILE: canonical_json([each.told() for each in found])},
        derived_from={
            "training_set": request.training_set,
            **{f"feature_tables.{each.view.name}": each.feature_tables for each in found},
        },
        configuration={"max_skew": request.max_skew},
        details={"verdict": verdict, "reasons": reasons, "values": values},
    )
    return CompareOnlineResult(comparison=str(comparison), verdict=verdict, reasons=reasons, values=values)


def _opened(store: ArtifactStore, project: str, folder: Path, views: "Sequence[View]") -> "OnlineStore":
    """Open the online store, and check that it holds all features of the views.

    Raises:
        StoreError: if it is not set up, cannot be reached, or holds no rows of a view.
    """
    from gatehouse.errors import ConfigurationError, StoreError
    from gatehouse.online.opening import open_online
    from gatehouse.online.store import online_view, require_materialized

    try:
        online = open_online(store, project, folder)
        require_materialized(online, map(online_view, views))
    except ConfigurationError as error:
        raise StoreError(str(error)) from error
    return online


def _unlike(store: ArtifactStore, service: str, learned: str, written: Iterable[str]) -> Iterator[str]:
    """Reasons why written rows have another meaning than the rows of the training set."""
    from gatehouse.errors import ConfigurationError
    from gatehouse.features.definitions.changes import require_same_features

    for given in sorted({store.manifest(each).derived_from["definitions"] for each in written}):
        try:
            require_same_features(store, service, learned, given)
        except ConfigurationError as error:
            yield " ".join(str(error).split())


def _differing(found: "Sequence[Standing]", max_skew: float) -> Iterator[str]:
    """Reasons why the skew of the views exceeds `max_skew`."""
    if max_skew < 1:
        yield from (
            f"{e.view.name}: no value was compared: {e.unseen}, so it is served empty" for e in found if e.unseen
        )
    counts = {name: count for each in found for name, count in each.skew.differing.items()}
    values, differing = sum(each.skew.values for each in found), sum(counts.values())
    if differing > max_skew * values:
        told = ", ".join(f"{name} {count}" for name, count in counts.items())
        yield f"{differing} of {values} values read online differ from the offline ones: {told}"
