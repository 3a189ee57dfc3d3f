"""The baseline stage: the models that a candidate is measured beside, fitted once for a training set and split."""

from typing import TYPE_CHECKING

from pydantic import Field

from gatehouse.components.artifacts.canonical import canonical_json
from gatehouse.components.artifacts.stage import StageModel, stage
from gatehouse.components.artifacts.store import ArtifactStore

if TYPE_CHECKING:
    from pathlib import Path


class BaselineRequest(StageModel):
    """The data that the task's baseline, and on request boosted trees, are fitted on."""

    training_set: str
    split: str
    task: str = Field("binary", description="Name of the task, which says what its baseline is.")
    boosted_trees: bool = False


class BaselineResult(StageModel):
    """The baseline model: `baseline.json` holds what it does to each column, coefficients and intercept.

    Boosted trees stand beside it, in `trees.ubj`, with their columns in `trees.json`.
    """

    baseline: str


@stage("fit_baseline", title="Fit the baseline", inner=True)
def fit_baseline(request: BaselineRequest, store: ArtifactStore) -> BaselineResult:
    """Fit the task's baseline, and trees where they are wanted, on the train part; again only when the data changes.

    Raises:
        ConfigurationError: if evaluation does not judge the task.
        UnusablePartError: if the train part cannot be learned from.
    """
    from gatehouse.components.evaluation.baseline.kinds import BASELINES
    from gatehouse.components.evaluation.parts import read_part
    from gatehouse.components.tasks.found import TASKS
    from gatehouse.components.tasks.judging import judging_of

    task = TASKS[request.task]
    manifest = store.manifest(request.training_set)
    part = read_part(store, request.training_set, request.split, "train", task)
    columns = manifest.details["numeric"], manifest.details["categorical"]
    fitted = BASELINES[judging_of(task).baseline].fit(part.table, part.labels, *columns)
    files: dict[str, Path | bytes | str] = {"baseline.json": canonical_json(fitted.to_json())}
    if request.boosted_trees:
        from gatehouse.components.evaluation.baseline.boosted_trees import BoostedTrees

        grown = BoostedTrees.fit(part.table, part.labels, *columns)
        files |= {"trees.json": canonical_json(grown.to_json()), "trees.ubj": grown.trees}
    reference = store.publish(
        "baselines",
        manifest.name,
        files,
        derived_from={"training_set": request.training_set, "split": request.split},
    )
    return BaselineResult(baseline=str(reference))
