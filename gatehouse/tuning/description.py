"""The description of an experiment as data: the content of `experiment.json` before there is any trial."""

from typing import Any

from gatehouse.tuning.spec import ExperimentSpec


def described(spec: ExperimentSpec, steps: int) -> dict[str, Any]:
    """What is searched, how, and under which limits.

    Args:
        spec: The experiment.
        steps: Steps of a whole trial.
    """
    body = spec.model_dump(mode="json")
    kept = ("algorithm", "early_stopping", "parameters", "trial_settings", "budget", "constraints", "warm_start")
    objectives = [{"metric": one.metric, "minimize": one.minimize, "goal": one.goal} for one in spec.objective]
    return {"objectives": objectives, "steps_per_trial": steps, **{name: body[name] for name in kept}}
