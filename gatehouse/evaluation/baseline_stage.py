"""The baseline stage: fits the models that a candidate is compared with, once for a training set and split."""

from pydantic import Field

from gatehouse.metrics.tasks import TaskName
from gatehouse.store.canonical import canonical_json
from gatehouse.store.stage import StageModel, stage
from gatehouse.store.store import ArtifactStore

_MOST_ROWS = 500_000


class BaselineRequest(StageModel):
    """The data that the task's baseline is fitted on."""

    split: str
    task: TaskName = Field("binary", description="Name of the task, which determines the baseline.")
    parts: tuple[str, ...] = Field(("train",), description="The parts of the split that the candidate learned from.")


class BaselineResult(StageModel):
    """The baseline: `baseline.json` holds the linear model, `constant.json` one without features."""

    baseline: str


@stage("fit_baseline", title="Fit the baseline", inner=True)
def fit_baseline(request: BaselineRequest, store: ArtifactStore) -> BaselineResult:
    """Fit a linear model and a constant on the candidate's rows, at most 500,000 of them, evenly spaced.

    Raises UnusablePartError if these rows cannot be learned from.
    """
    from gatehouse.data.splitting.parts import divided_set, read_part
    from gatehouse.data.statistics.linear_model import LinearModel
    from gatehouse.metrics.tasks import TASKS

    training_set = divided_set(store, request.split)
    manifest = store.manifest(training_set)
    first, *more = request.parts
    whole = read_part(store, training_set, request.split, first, TASKS[request.task], *more)
    part = whole.thinned(_MOST_ROWS)
    numeric, categorical = manifest.details["numeric"], manifest.details["categorical"]
    fitted = LinearModel.fit(request.task, part.table, part.labels, numeric, categorical)
    constant = LinearModel.fit(request.task, whole.columns, whole.labels, [], [])
    reference = store.publish(
        "baselines",
        manifest.name,
        {"baseline.json": canonical_json(fitted.to_json()), "constant.json": canonical_json(constant.to_json())},
        derived_from={"training_set": training_set, "split": request.split},
    )
    return BaselineResult(baseline=str(reference))
