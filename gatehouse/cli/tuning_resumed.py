"""Applies higher limits to an experiment that is resumed: trials, minutes, cost, steps."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from gatehouse.cli.experiments import Found, asked_for
from gatehouse.errors import ConfigurationError, GatehouseError
from gatehouse.store.store import ArtifactStore

if TYPE_CHECKING:
    from gatehouse.tuning.spec import ExperimentSpec
    from gatehouse.tuning.stage import TuneRequest


def request_of(store: ArtifactStore, found: Found) -> "TuneRequest":
    """The request of an experiment.

    Raises:
        MissingArtifactError: if the store has no study of it.
        GatehouseError: if the request has another form, as one of another version of Gatehouse may have.
    """
    from gatehouse.tuning.stage import TuneRequest

    try:
        return TuneRequest.model_validate(asked_for(store, found))
    except ValidationError as error:
        wrong = ", ".join(".".join(map(str, each["loc"])) for each in error.errors())
        use = ", for which `warm_start` can name this one" if found.reference else ""
        raise GatehouseError(
            f"{found.short} was begun by another version of Gatehouse: expected a request as this version makes it, "
            f"found one that differs in {wrong}. It cannot be resumed. Run the training pipeline: it makes a new "
            f"experiment{use}."
        ) from error


def used_of(store: ArtifactStore, found: Found) -> dict[str, float]:
    """Steps and minutes that a published experiment has used; empty if it is not published."""
    if not found.reference:
        return {}
    measured = [one for one in store.measurements(found.reference, "tune") if one.get("study") == found.study]
    minutes = sum(float(one["seconds"]) for one in measured) / 60
    return {"steps": float(found.shown.about.get("steps", 0)), "minutes": minutes}


def enlarged(
    found: Found, spec: "ExperimentSpec", wanted: Mapping[str, float | None], used: Mapping[str, float]
) -> dict[str, Any]:
    """The experiment as JSON, with higher limits.

    Args:
        found: The present experiment.
        spec: The request.
        wanted: `max_trial_count`, and keys of `budget`; None for unchanged limits.
        used: What it is known to have used.

    Raises:
        ConfigurationError: if a limit is not higher than what was used or allowed.
    """
    given = {name: value for name, value in wanted.items() if value is not None}
    before = spec.budget.model_dump() | {"max_trial_count": len(found.shown.trials)}
    for name, value in given.items():
        least = max(before[name] or 0, used.get(name, 0))
        if value <= least:
            had = f"already has {least} trials" if name == "max_trial_count" else f"had {before[name] or 'no limit'}"
            had += f" and used {used[name]:.3g}" if used.get(name) else ""
            raise ConfigurationError(
                f"{_option(name)}: {found.short} {had}; expected more than {least:g}, found {value:g}."
            )
    trials = given.pop("max_trial_count", spec.max_trial_count)
    budget = spec.budget.model_dump() | given
    return spec.model_dump() | {"max_trial_count": trials, "budget": budget}


def require_more(found: Found, spec: "ExperimentSpec") -> None:
    """Check that an experiment may continue.

    Raises:
        GatehouseError: if nothing of it was kept, or it has reached a limit that is not raised.
    """
    if spec.resume_policy == "never":
        raise GatehouseError(
            f"{found.short} has resume_policy: never, so it cannot be resumed. Run the training pipeline to start a "
            "new experiment."
        )
    if not found.reference or found.shown.about.get("provisional"):
        return
    if len(found.shown.trials) >= spec.max_trial_count:
        raise GatehouseError(
            f"{found.short} has made its {spec.max_trial_count} trials; give more with --max-trial-count."
        )
    ended = str(found.shown.about.get("ended"))
    budget = spec.budget.model_dump()
    if ended in budget and budget[ended] == found.shown.about["budget"][ended]:
        more = f"; give more with {_option(ended)}"
        if ended == "expected_improvement":
            more = (
                ": more trials promise less than that. Lower it under tuning.budget in project.yaml and run the "
                "training pipeline: the experiment goes on; to search another space, name this one in `warm_start`"
            )
        raise GatehouseError(f"{found.short} has used its budget of {ended}, {budget[ended]:g}{more}.")


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
