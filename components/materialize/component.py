"""The KFP interface of the stage `materialize`."""

from typing import NamedTuple

from gatehouse.components.interface import component


@component("data", title="Materialize online", cpu="2", memory="4G", minutes=60)
def materialize(
    store: str,
    snapshot: str,
    feature_tables: str,
    definitions: str,
    project: str,
    service: str,
    as_of: str,
    max_skew: float = 0.0,
    rewrite: bool = False,
) -> NamedTuple(
    "Outputs",
    [
        ("skew", float),
        ("cells", int),
        ("values", int),
        ("differing", dict),
        ("unseen", list),
        ("written", dict),
        ("verdict", str),
        ("reasons", list),
        ("report", str),
    ],
):
    """Write what was known at `as_of` to the online store, read a sample back, and judge the skew.

    Args:
        store: Address of the artifact store.
        snapshot: Reference of the snapshot.
        feature_tables: Reference of the feature tables.
        definitions: Reference of the feature definitions.
        project: Name of the project, whose online store is written.
        service: Name of the feature service.
        as_of: Time up to which features are written, ISO 8601.
        max_skew: Share of differing values above which the verdict is fail.
        rewrite: Write all rows, even if the store is at a later time.

    Returns:
        skew: Share of the values read back online that differ from the offline values.
        cells: Number of comparisons.
        values: Number of comparisons with a value online or offline.
        differing: Number of differing values, by view.
        unseen: Views without any compared value; they fail the verdict.
        written: Rows that changed the content of the store, by view.
        verdict: pass, or why a person should look.
        reasons: Why the verdict is not pass.
        report: Reference of the report.
    """
    from gatehouse.online.stage import materialize as run_materialize
    from gatehouse.store.parameters import open_store, request_of, runner, values_of

    run = runner(open_store(store))
    request = request_of(
        run_materialize,
        snapshot=snapshot,
        feature_tables=feature_tables,
        definitions=definitions,
        project=project,
        service=service,
        as_of=as_of,
        max_skew=max_skew,
        rewrite=rewrite,
    )
    return values_of(run(run_materialize, request))
