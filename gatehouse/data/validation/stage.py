"""The validate stage: a snapshot is measured and judged against its contract and, where there is one, a baseline."""

from datetime import datetime

from pydantic import Field

from gatehouse.data.statistics.stage import MeasureRequest, measure
from gatehouse.data.validation.spec import StatisticsSpec
from gatehouse.store.canonical import canonical_json
from gatehouse.store.identity import operational
from gatehouse.store.reference import references_in
from gatehouse.store.stage import Resources, StageModel, stage
from gatehouse.store.store import ArtifactStore


class ValidateRequest(StageModel):
    """What is judged.

    Attributes:
        snapshot: Reference of the snapshot.
        contract: Reference of the contract, a configuration.
        baseline: Reference of an earlier validation to compare with; empty for none.
        snapshots: References of other snapshots that foreign keys lead to, by the name that the contract gives them.
        delivery: What the guards said as the snapshot was taken: it stands on the record of what is made of it.
        statistics: Where statistics are computed; it changes no result.
        force: Measure again whatever the memo holds; it changes no result.
    """

    snapshot: str
    contract: str
    baseline: str = ""
    snapshots: dict[str, str] = Field({})
    delivery: tuple[str, ...] = ()
    statistics: StatisticsSpec = operational(StatisticsSpec())
    force: str = operational("")


class ValidateResult(StageModel):
    """The validation, its verdict (`pass` or `fail`), the reasons where it is `fail`, and what is only a warning."""

    validation: str
    verdict: str
    reasons: tuple[str, ...]
    warnings: tuple[str, ...] = ()


@stage(
    "validate",
    title="Validate against the contract",
    resources=Resources(cpu="2", memory="4G"),
    pages={"validations": "gatehouse.data.validation.report:page"},
)
def validate(request: ValidateRequest, store: ArtifactStore) -> ValidateResult:
    """Judge a snapshot. A breach is a verdict, not an error.

    The artifact holds `anomalies.json`, which the alert and the page read, and `verdict.json` with how many rules were
    judged, which could not be, and what the guards said. Its
    statistics are an artifact of their own, which it is derived from.

    Raises:
        ConfigurationError: if the contract is not one, or needs values of a column that the source declares sensitive.
    """
    from gatehouse.data.statistics.document import without_values
    from gatehouse.data.statistics.measurement import measurement, statistics_of
    from gatehouse.data.validation.anomalies import Findings
    from gatehouse.data.validation.checks import Baseline, Judge
    from gatehouse.data.validation.contract import CONTRACT_FILE, published_contract
    from gatehouse.data.validation.tables import opened, tables_of

    snapshot = store.manifest(request.snapshot)
    tables = tables_of(store, request.snapshot)
    contract = published_contract(store.read_text(request.contract, CONTRACT_FILE))
    contract = contract.hiding({name: table.sensitive for name, table in tables.items()})
    others = {name: request.snapshots.get(name, name) for name in contract.snapshots()}
    others = {name: other for name, other in others.items() if references_in(other)}
    elsewhere = {name: tables_of(store, other, f"{name} ") for name, other in others.items()}
    sensitive = {name: tuple(contract.sensitive(name, table.types())) for name, table in tables.items()}
    before = statistics_of(store, request.baseline)
    wanted = MeasureRequest(
        name=snapshot.name,
        datasets=snapshot.derived_from,
        sensitive=sensitive,
        baseline=before,
        statistics=request.statistics,
    )
    measured = measure(wanted, store, force=request.force).statistics
    found, baseline = measurement(store, measured), measurement(store, before)
    compared = Baseline(without_values(baseline.statistics, sensitive), found.rebinned, baseline.rows)
    findings = Findings()
    every = [*tables.values(), *(table for other in elsewhere.values() for table in other.values())]
    with store.workspace() as workspace, opened(every, workspace) as connection:
        as_of = datetime.fromisoformat(snapshot.details["as_of"])
        against = compared if request.baseline else None
        Judge(connection, tables, contract, as_of, found.statistics, against, findings, elsewhere).run()
    inputs = {"snapshot": request.snapshot, "contract": request.contract, "statistics": measured}
    inputs |= {f"snapshot {name}": other for name, other in others.items()}
    told = {"judged": findings.judged, "not_judged": findings.not_judged, "delivery": request.delivery}
    # The manifest stays after an erasure, so it has no values of rows: of a guard its table and name, and no example.
    delivered = [": ".join(text.split(": ")[:2]).rstrip(".") for text in request.delivery]
    reference = store.publish(
        "validations",
        snapshot.name,
        {
            "anomalies.json": canonical_json([one.to_json() for one in findings.sorted()]),
            "verdict.json": canonical_json(told),
        },
        derived_from=inputs | ({"baseline": request.baseline} if request.baseline else {}),
        details={"verdict": findings.verdict, "warnings": [*delivered, *findings.warned_of()]},
    )
    said = {"reasons": findings.reasons(), "warnings": findings.warnings()}
    return ValidateResult(validation=str(reference), verdict=findings.verdict, **said)
