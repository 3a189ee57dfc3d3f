"""The top of an experiment's page: the best trial, and why the experiment ended."""

from collections import Counter

from gatehouse.reports.page import Verdict
from gatehouse.runtime.counting import counted
from gatehouse.tuning.reports.shown import Shown, values_of

_ENDINGS = {
    "max_trial_count": "it made as many trials as max_trial_count says",
    "max_failed_trial_count": "more trials failed than max_failed_trial_count allows",
    "goal": "a trial reached the goal",
    "minutes": "budget.minutes were over",
    "cost": "budget.cost was spent",
    "steps": "budget.steps were trained",
    "expected_improvement": "no trial is expected to be better by as much as budget.expected_improvement",
    "generations": "every member of the population trained to its last epoch",
    "exhausted": "every configuration of the search space was tried",
    "stopped": "somebody stopped it",
}


def ending(ended: str) -> str:
    """Why an experiment ended, in words."""
    return _ENDINGS.get(ended, ended)


def verdict(shown: Shown) -> Verdict:
    """The verdict of an experiment, also of one without a successful trial, and of a running one."""
    why = f"The experiment ended because {ending(str(shown.about['ended']))}." if shown.state == "ended" else ""
    best, warnings = shown.best, _failures(shown)
    if best is None:
        text = f"None of {len(shown.trials):,} trials succeeded. {why}" if shown.trials else f"There is no trial. {why}"
        if shown.state != "ended":
            return Verdict("warn", text.strip(), warnings=warnings, title=shown.state)
        todo = "Read the reasons in the table of trials; the log of a trial says more." if shown.trials else ""
        return Verdict("fail", text.strip(), warnings=warnings, todo=todo, title="No parameters found")
    lines = [f"{_best(shown)} {why}".strip()]
    if not best.get("feasible", True):
        lines.append("No trial keeps every constraint: the best one breaks at least one of them.")
    final = shown.state == "ended" and not shown.about.get("provisional")
    word = "pass" if final and best.get("feasible", True) else "warn"
    title = "Parameters found" if shown.state == "ended" else shown.state
    return Verdict(word, "", tuple(lines), warnings, title=title)


def _best(shown: Shown) -> str:
    best, several = shown.best, len(shown.objectives) > 1
    assert best is not None
    if several and shown.front:
        where = f"is the knee of the Pareto front of {len(shown.front):,} trials"
    else:
        where = f"of {len(shown.trials):,} is best" + (" so far" if shown.state != "ended" else "")
    return f"Trial {best['number']} {where}: {values_of(shown, best)}."


def _failures(shown: Shown) -> tuple[str, ...]:
    """Number of trials without a value, by reason."""
    without = [one for one in shown.trials if one["state"] == "failed"]
    reasons = Counter(str(one.get("reason") or "no reason") for one in without)
    lines = [f"{counted(count, 'trial')}: {reason}" for reason, count in reasons.most_common()]
    if again := len(shown.about.get("provisional") or ()):
        lines.append(
            f"The result is provisional: {counted(again, 'trial')} failed for a reason outside of the search, such as "
            "a time limit, memory or a cluster. The next run tries again."
        )
    return tuple(lines)


def subtitle(shown: Shown) -> str:
    """A one-line description of the experiment."""
    numbers = Counter(str(one["state"]) for one in shown.trials)
    states = ", ".join(f"{count:,} {state.replace('_', ' ')}" for state, count in numbers.items())
    stopping = shown.about.get("early_stopping")
    pruned = f", early stopping by {stopping['name']}" if stopping else ""
    trials = counted(len(shown.trials), "trial")
    return f"{trials}{f' ({states})' if states else ''}, algorithm {shown.about['algorithm']['name']}{pruned}"
