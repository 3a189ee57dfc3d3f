"""Explains why an experiment has no best trial, and what to do about it."""

from collections.abc import Iterator, Sequence

from gatehouse.tuning.ending import LAST_TRIALS_END, Ending
from gatehouse.tuning.spec import Constraint, ExperimentSpec
from gatehouse.tuning.trial import Trial


def failure(trials: Sequence[Trial], spec: ExperimentSpec, ending: Ending, key: str) -> str:
    """The message for an experiment that ended without a best trial.

    Args:
        trials: All trials.
        spec: The experiment.
        ending: Why it ended.
        key: Key of its study.
    """
    states = [each.state for each in trials]
    failed = [each for each in trials if each.state == "failed"]
    reasons = "".join(f"\n  - trial {each.number}: {each.told or each.reason}" for each in failed)
    if ending == "max_failed_trial_count":
        most = spec.max_failed_trial_count
        found = f"{len(failed)} of {len(trials)} trials failed, expected at most {most}."
    elif "succeeded" in states:
        broken = "; ".join(_measured(trials, each) for each in spec.constraints)
        found = (
            f"None of the {states.count('succeeded')} trials that succeeded keeps to all constraints: {broken}. Loosen "
            "tuning.constraints, or search other parameters."
        )
    else:
        counts = ", ".join(f"{states.count(state)} {state}" for state in sorted(set(states)))
        found = f"None of {len(trials)} trials succeeded ({counts or 'none was begun'})."
        found += _advice(spec, ending, key) + _of_early_stopping(spec, states.count("early_stopped"))
    found += f" What failed:{reasons}" if reasons else ""
    again = sum(each.provisional for each in failed)
    if again and ending in (*LAST_TRIALS_END, "max_failed_trial_count", "stopped"):
        found += (
            f"\nThe next run tries {again} of them again: they failed for a reason outside of the search, such as a "
            "time limit, memory or a cluster."
        )
    return found


def _measured(trials: Sequence[Trial], constraint: Constraint) -> str:
    """The limit of a constraint, and the nearest measured value."""
    name, most, least = constraint.measure, constraint.at_most, constraint.at_least
    values = list(_values(trials, name))
    wanted = f"at most {most:g}" if most is not None else f"at least {least:g}"
    if not values:
        return f"{name}: {wanted}, measured of no trial"
    nearest = f"the least was {min(values):g}" if most is not None else f"the most was {max(values):g}"
    return f"{name}: {wanted}, {nearest}"


def _values(trials: Sequence[Trial], name: str) -> Iterator[float]:
    for trial in trials:
        known = trial.metrics | trial.measures
        if trial.state == "succeeded" and name in known:
            yield known[name]


def _advice(spec: ExperimentSpec, ending: Ending, key: str) -> str:
    if ending == "stopped":
        return (
            " The experiment was stopped before any trial succeeded. Run the pipeline again to go on with other "
            f"trials, or gatehouse tuning resume {key} --max-trial-count {spec.max_trial_count + 1} or more."
        )
    if ending in ("minutes", "cost", "steps"):
        given = getattr(spec.budget, ending)
        return f" tuning.budget.{ending} ({given:g}) was used before any trial succeeded; raise it and run again."
    return ""


def _of_early_stopping(spec: ExperimentSpec, stopped: int) -> str:
    """Advice on early stopping: a stopped trial reports values, but leaves no usable model."""
    if not stopped:
        return ""
    told = f" early_stopping ended {stopped} of them, and a trial that is stopped early leaves no model to be the best:"
    if spec.early_stopping and spec.early_stopping.name == "patience":
        return (
            f"{told} take tuning.early_stopping: patience out, and let training itself end a trial that becomes no "
            "better, as trial_settings: {stopping.patience: 3}; such a trial succeeds."
        )
    return f"{told} give tuning.early_stopping more steps before it stops, take median, or leave it out."
