"""The KFP interface of the stage `retrain`."""

from typing import NamedTuple

from gatehouse.components.interface import component


@component("training", title="Order a new model", cpu="500m", memory="1G", minutes=15)
def retrain(
    store: str,
    project: str,
    model_name: str,
    drift: str,
    spec: dict = {},
    registered: str = "",
    source: str = "",
    window: str = "",
    until: str = "",
) -> NamedTuple(
    "Outputs", [("action", str), ("cause", str), ("run", str), ("reasons", list), ("summary", str), ("warnings", list)]
):
    """Order a training if one is due and no limit holds it back; a cause is ordered once.

    Args:
        store: Address of the artifact store.
        project: Name of the project.
        model_name: Name under which models are registered.
        drift: Reference of the drift report, which names the champion.
        registered: When the champion was registered, in UTC; empty if not known.
        source: Where the training reads the raw tables; empty for the project's source.
        window: The events that the training reads; empty for all.
        until: End of the window that was monitored; empty if it reaches up to now. A window of the past, as in a
            backfill, orders nothing.
        spec: What asks for a new model, and how often, as a RetrainSpec.

    Returns:
        action: nothing, held back, done, under way, submitted, or ordered.
        cause: What the new model is for.
        run: Name of the run that trains it; empty for none.
        reasons: Why the verdict is not pass.
        summary: The result in one line.
        warnings: What a person should know, though the verdict is pass.
    """
    from gatehouse.monitoring.retraining_stage import retrain as run_retrain
    from gatehouse.store.parameters import open_store, request_of, runner, values_of

    run = runner(open_store(store))
    request = request_of(
        run_retrain,
        project=project,
        model_name=model_name,
        drift=drift,
        registered=registered,
        source=source,
        window=window,
        until=until,
        spec=spec,
    )
    return values_of(run(run_retrain, request))
