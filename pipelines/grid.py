"""A small grid by KFP's own means: `dsl.ParallelFor` makes a task of each configuration, `dsl.Collected` gathers them.

For those who want each configuration to be a task of its own in the UI. The tune stage does more in one task: it goes
on where it was killed, stops what is not worth its end, and suggests by what it has seen. KFP 2.17 does not try a task
of a loop again. Configurations that were trained before come from the memo here too.
"""

from typing import TYPE_CHECKING, Any

from kfp import dsl

from gatehouse.errors import ConfigurationError
from gatehouse.pipelines.tasks import Tasks
from gatehouse.project.project import Project
from gatehouse.runtime.images import image
from gatehouse.store.parameters import parameter_of
from gatehouse.training.spec import own_metric
from gatehouse.training.stage import train
from gatehouse.tuning.configuration import configured
from gatehouse.tuning.parameters import combinations
from gatehouse.tuning.spec import MEASURES

if TYPE_CHECKING:
    from gatehouse.project.platforms import Platform

_MOST = 64


@dsl.component(base_image=image("control"), packages_to_install=[], install_kfp_package=False)
def best_model(store: str, models: list, metric: str, minimize: bool) -> str:
    """The model with the best validation metric.

    Args:
        store: Address of the artifact store.
        models: References of models.
        metric: Name of the metric.
        minimize: Whether less is better.
    """
    from gatehouse.store.store import ArtifactStore

    opened, sign = ArtifactStore.open(store), 1 if minimize else -1

    def loss(model: str) -> float:
        history = opened.read_json(model, "history.json")
        return float(sign * history[opened.manifest(model).details["best_epoch"]][metric])

    return str(min(models, key=loss))


def grid(project: Project, platform: "Platform | None" = None) -> Any:
    """The pipeline that trains every configuration of the project's `tuning.parameters`, and gives the best model.

    Its parameters are references that a run of the training pipeline has made.

    Args:
        project: Each of its searched parameters has a list of values, or a step.
        platform: Where it is to run; None for this machine.

    Raises:
        ConfigurationError: if the configurations are endless, more than a run of KFP should have tasks, or not compared
            by one validation metric alone.
    """
    file, tuning = project.file, project.file.tuning
    if tuning is None or any(each.finite is None for each in tuning.parameters):
        raise ConfigurationError("tuning.parameters: expected a list of values, or a step, of each, for a grid")
    tuning = tuning.aimed_at(own_metric(file.training))
    if len(tuning.objective) > 1 or tuning.constraints or tuning.objective[0].metric in MEASURES:
        raise ConfigurationError(
            "tuning: a grid of KFP tasks takes one objective that training measures, and no constraints, found "
            f"{', '.join(each.metric for each in tuning.objective)} and {len(tuning.constraints)} constraints; use the "
            "training pipeline with algorithm: grid"
        )
    choices = list(combinations(tuning.ordered, {}))
    if len(choices) > _MOST:
        raise ConfigurationError(f"tuning.parameters: expected at most {_MOST} configurations, found {len(choices)}")
    specs = [configured(file.training, chosen, tuning.trial_settings) for chosen in choices]
    objective, tasks = tuning.objective[0], Tasks("grid", project, platform)

    @dsl.pipeline(name=f"{project.name}-grid", description=f"Train a grid of {file.model}.")
    def pipeline(training_set: str, split: str, transformation: str, store: str = project.store) -> str:
        """Train every configuration.

        Args:
            training_set: Reference of the training set.
            split: Reference of its split.
            transformation: Reference of the transformation fitted on its train part.
            store: Address of the artifact store.
        """
        tasks.at(store)  # No exit handler reports its end: KFP breaks loops within one.
        settings = [parameter_of(spec) for spec in specs]
        with dsl.ParallelFor(settings, parallelism=tuning.parallel_trial_count) as chosen:
            trained = tasks.add(
                train,
                training_set=training_set,
                split=split,
                transformation=transformation,
                spec=chosen,
                model_name=f"{file.model}-trial",
            )
        models = dsl.Collected(trained.outputs["model"])
        best = best_model(store=store, models=models, metric=objective.metric, minimize=objective.minimize)
        best.set_caching_options(enable_caching=False)
        return best.output  # type: ignore[no-any-return] # KFP types no outputs

    return pipeline
