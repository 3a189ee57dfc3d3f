"""The KFP interface of the stage `freshness`."""

from typing import NamedTuple

from gatehouse.components.interface import component


@component("control", title="Measure freshness", cpu="500m", memory="1G", minutes=10)
def freshness(
    store: str,
    feature_tables: str,
    definitions: str,
    as_of: str,
    against: str = "clock",
) -> NamedTuple("Outputs", [("hours", dict), ("stale", list), ("verdict", str), ("reasons", list)]):
    """Measure the freshness of every view that has a time, and judge it; a view without a limit is only measured.

    Args:
        store: Address of the artifact store.
        feature_tables: Reference of the feature tables.
        definitions: Reference of the feature definitions.
        as_of: Time of the run, ISO 8601.
        against: What age is measured from: `as_of` or `clock`.

    Returns:
        hours: Age of the newest event in hours, by view; a view without rows is left out.
        stale: Views that are stale, and by how much.
        verdict: pass, or why a person should look.
        reasons: Why the verdict is not pass.
    """
    from gatehouse.features.freshness_stage import freshness as run_freshness
    from gatehouse.store.parameters import open_store, request_of, runner, values_of

    run = runner(open_store(store))
    request = request_of(
        run_freshness, feature_tables=feature_tables, definitions=definitions, as_of=as_of, against=against
    )
    return values_of(run(run_freshness, request))
