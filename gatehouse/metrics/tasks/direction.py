"""Whether less is better of what training measures.

Apart from the tasks themselves, as this knows the metrics that training can watch: what only asks for a task does not
depend on them.
"""

from gatehouse.metrics.tasks.found import TASKS


def is_minimized(measure: str) -> bool:
    """Whether less is better of a metric, or of the mean of a loss."""
    from gatehouse.metrics.catalogue import metric_named  # Which imports NumPy.

    if any(measure in task.losses.values() for task in TASKS.values()):
        return True
    return metric_named(measure).better == "lower"
