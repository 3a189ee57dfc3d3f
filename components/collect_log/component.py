"""The KFP interface of the stage `collect_log`."""

from typing import NamedTuple

from gatehouse.components.interface import component


@component("control", title="Take the log of predictions", memory="4G")
def collect_log(
    store: str,
    log: str,
    model: str,
) -> NamedTuple("Outputs", [("predictions", str), ("rows", int)]):
    """Find a log of predictions, and publish it if it is outside the store.

    Args:
        store: Address of the artifact store.
        log: A reference of predictions, or of a snapshot with a table `predictions`; `latest` for the newest
            predictions of the champion by batch scoring; or the path or URL of a Parquet file or a folder of them;
            empty for none.
        model: The champion.

    Returns:
        predictions: Reference of the predictions; empty for none.
        rows: Number of rows.
    """
    from gatehouse.monitoring.collecting_stage import collect_log as run_collect_log
    from gatehouse.store.parameters import open_store, request_of, runner, values_of

    run = runner(open_store(store))
    request = request_of(run_collect_log, log=log, model=model)
    return values_of(run(run_collect_log, request))
