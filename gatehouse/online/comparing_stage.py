"""The stage that reads the features of a training set from the online store and compares them with the offline values.

It is part of the integration suite of a candidate: serving must give the model the values that it was trained on.
"""

from typing import TYPE_CHECKING, Literal

from gatehouse.store.canonical import canonical_json
from gatehouse.store.stage import CONTENTS, Effects, StageModel, stage
from gatehouse.store.store import ArtifactStore

if TYPE_CHECKING:
    from gatehouse.online.skew import ViewSkew


FILE = "online.json"
Verdict = Literal["pass", "fail", "not checked"]


class CompareOnlineRequest(StageModel):
    """A training set whose feature service is read online; above the share `max_skew` of differences it fails."""

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
    pages={"online-comparisons": CONTENTS},
    section="integration",
)
def compare_online(request: CompareOnlineRequest, store: ArtifactStore) -> CompareOnlineResult:
    """Compare a sample of the online store with the offline values; `online.json` has the result by view.

    The verdict is `not checked`, with the reason, if the online store is not set up or cannot be reached, if it holds
    no view of the training set's service, or if the feature tables that were written are not here. A view that is being
    written is left out, with the reason; if all views are left out, the verdict is `not checked` too.
    """
    from gatehouse.errors import ConfigurationError, MissingArtifactError, StoreError
    from gatehouse.features.definitions.changes import require_same_features
    from gatehouse.features.definitions.repository import check_out
    from gatehouse.online.serving import open_online
    from gatehouse.online.skew import Skew, present_skew, skew_reasons
    from gatehouse.online.store import online_view, require_materialized

    manifest = store.manifest(request.training_set)
    inputs, service = manifest.derived_from, str(manifest.configuration["service"])
    tables, definitions = inputs["feature_tables"], inputs["definitions"]
    project = store.manifest(tables).name
    results: list[ViewSkew] = []
    verdict: Verdict = "not checked"
    reasons: list[str] = []
    with store.workspace() as workspace:
        repository = check_out(store, definitions, workspace / "feature_repo")
        views = [repository.views[name] for name in repository.service(service).views]
        try:
            try:
                online = open_online(store, project, repository.folder)
                require_materialized(online, map(online_view, views))
            except ConfigurationError as error:
                raise StoreError(str(error)) from error
            for written in sorted({online.state(view.name).tables or tables for view in views}):
                try:
                    require_same_features(
                        store, service, definitions, store.manifest(written).derived_from["definitions"]
                    )
                except ConfigurationError as error:
                    reasons.append(" ".join(str(error).split()))
            if reasons:
                verdict = "fail"
            else:
                results = list(present_skew(store, online, views, tables))
                skew = Skew(tuple(comparison for result in results for comparison in result.skew.compared))
                reasons = skew_reasons(skew, [result.view for result in results], request.max_skew)
                not_compared = [result.not_compared for result in results if result.not_compared]
                verdict = "fail" if reasons else "not checked" if len(not_compared) == len(results) else "pass"
                reasons += not_compared
        except (MissingArtifactError, StoreError) as error:
            verdict, reasons = "not checked", [str(error)]
    values = sum(result.skew.values for result in results)
    comparison = store.publish(
        "online-comparisons",
        service,
        {FILE: canonical_json([result.body() for result in results])},
        derived_from={
            "training_set": request.training_set,
            **{f"feature_tables.{result.view.name}": result.feature_tables for result in results},
        },
        configuration={"max_skew": request.max_skew},
        details={"verdict": verdict, "reasons": reasons, "values": values},
    )
    return CompareOnlineResult(comparison=str(comparison), verdict=verdict, reasons=tuple(reasons), values=values)
