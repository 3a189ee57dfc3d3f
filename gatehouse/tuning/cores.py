"""Checks whether simultaneous trials have a core for each thread; if not, they share cores and are only slower."""

import os

from gatehouse.launchers.choose import LAUNCH, launch_of
from gatehouse.launchers.spec import Launch, LocalLaunch
from gatehouse.runtime.limits import processors
from gatehouse.training.spec import TrainSpec
from gatehouse.tuning.configuration import starts
from gatehouse.tuning.spec import ExperimentSpec


def short_of_cores(spec: ExperimentSpec, base: TrainSpec, launch: Launch, cores: float, where: str) -> str:
    """A warning if trials need more cores than there are; empty if there are enough.

    Args:
        spec: The experiment.
        base: The training whose settings are searched.
        launch: Where trials run: on a cluster, each pod has its own cores.
        cores: Cores of the machine or pod that runs the experiment, or of each pod of a trial.
        where: Name of that place.
    """
    parallel = [start.parallelism for start in starts(spec, base)]
    widest = max(parallel, key=lambda each: each.processes * each.threads)
    if isinstance(launch, LocalLaunch):
        trials, processes, lower = spec.parallel_trial_count, widest.processes, "tuning.parallel_trial_count or "
    else:
        trials, processes, lower = 1, widest.processes // launch.nodes, ""
    wanted = trials * processes * widest.threads
    if wanted <= cores:
        return ""
    told = f"trials at once ({trials}) x processes ({processes}) x threads ({widest.threads}) want {wanted} cores"
    return (
        f"tuning: {told}, and {where} has {cores:g}. They share them: each trial takes longer and gives the same bits. "
        f"Lower {lower}tuning.trial_settings.parallelism.processes, or take more cores."
    )


def short_of_cores_here(spec: ExperimentSpec, base: TrainSpec) -> str:
    """The same check for trials in this process's machine or pod; empty if they run elsewhere."""
    launch = launch_of(os.environ.get(LAUNCH, ""))
    where = "this pod" if os.environ.get("KUBERNETES_SERVICE_HOST") else "this machine"
    return short_of_cores(spec, base, launch, processors(), where) if isinstance(launch, LocalLaunch) else ""
