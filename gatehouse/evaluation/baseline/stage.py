"""The baseline stage: the models that a candidate is measured beside, fitted once for a training set and split."""

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from pydantic import Field

from gatehouse.metrics.tasks.task import TaskName
from gatehouse.store.canonical import canonical_json
from gatehouse.store.stage import StageModel, stage
from gatehouse.store.store import ArtifactStore

if TYPE_CHECKING:
    from pathlib import Path

    from gatehouse.data.splitting.parts import Part

_MOST_ROWS = 500_000


class BaselineRequest(StageModel):
    """The data that the task's baseline, and on request boosted trees, are fitted on."""

    training_set: str
    split: str
    task: TaskName = Field("binary", description="Name of the task, which determines the baseline.")
    boosted_trees: bool = False
    parts: tuple[str, ...] = Field(("train",), description="The parts of the split that the candidate learned from.")


class BaselineResult(StageModel):
    """The baseline models.

    `baseline.json` holds what the linear model does to each column, coefficients and intercept; `constant.json` the
    same of a model that knows no column. Boosted trees are in `trees.ubj`, with their columns in `trees.json`.
    """

    baseline: str


@stage("fit_baseline", title="Fit the baseline", inner=True)
def fit_baseline(request: BaselineRequest, store: ArtifactStore) -> BaselineResult:
    """Fit a linear model, and trees where they are wanted, on the candidate's rows; again only when these change.

    Of many 500,000 evenly spaced rows are enough for both, and bound their memory.

    Raises:
        UnusablePartError: if these rows cannot be learned from.
    """
    from gatehouse.data.splitting.parts import read_part
    from gatehouse.data.statistics.linear_model import LinearModel
    from gatehouse.metrics.tasks.found import TASKS

    manifest = store.manifest(request.training_set)
    first, *more = request.parts
    whole = read_part(store, request.training_set, request.split, first, TASKS[request.task], *more)
    part = whole.thinned(_MOST_ROWS)
    columns = manifest.details["numeric"], manifest.details["categorical"]
    with ThreadPoolExecutor(1) as beside:  # Trees grow on one thread, for their bits: the other core fits the rest.
        trees = beside.submit(_trees, request, part, columns)
        fitted = LinearModel.fit(request.task, part.table, part.labels, *columns)
        constant = LinearModel.fit(request.task, whole.table, whole.labels, [], [])
        files: dict[str, Path | bytes | str] = {
            "baseline.json": canonical_json(fitted.to_json()),
            "constant.json": canonical_json(constant.to_json()),
        } | trees.result()
    reference = store.publish(
        "baselines",
        manifest.name,
        files,
        derived_from={"training_set": request.training_set, "split": request.split},
    )
    return BaselineResult(baseline=str(reference))


def _trees(request: BaselineRequest, part: "Part", columns: tuple[list[str], list[str]]) -> dict[str, Any]:
    """The files of boosted trees; none where they are not wanted."""
    if not request.boosted_trees:
        return {}
    from gatehouse.evaluation.baseline.boosted_trees import BoostedTrees

    grown = BoostedTrees.fit(request.task, part.table, part.labels, *columns, groups=part.groups)
    return {"trees.json": canonical_json(grown.to_json()), "trees.ubj": grown.trees}
