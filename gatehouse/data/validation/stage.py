"""The validate stage: measures a snapshot, and judges it against its contract and a baseline."""

from datetime import datetime

from pydantic import Field

from gatehouse.data.statistics.stage import MeasureRequest, measure
from gatehouse.store.canonical import canonical_json
from gatehouse.store.identity import operational
from gatehouse.store.reference import references_in
from gatehouse.store.stage import StageModel, stage
from gatehouse.store.store import ArtifactStore


class ValidateRequest(StageModel):
    """A snapshot, its contract, and an earlier validation to compare with.

    Attributes:
        baseline: Reference of the earlier validation; empty for none.
        snapshots: References of other snapshots that foreign keys name, by name.
        delivery: Warnings of the guards about the delivery, for the record.
        force: Measure again even if the memo has the statistics; it changes no result.
    """

    snapshot: str
    contract: str
    baseline: str = ""
    snapshots: dict[str, str] = Field({})
    delivery: tuple[str, ...] = ()
    force: str = operational("")


class ValidateResult(StageModel):
    """The validation, its verdict (`pass` or `fail`), the reasons for `fail`, and warnings."""

    validation: str
    verdict: str
    reasons: tuple[str, ...]
    warnings: tuple[str, ...] = ()


@stage(
    "validate", title="Validate against the contract", pages={"validations": "gatehouse.data.validation.report:page"}
)
def validate(request: ValidateRequest, store: ArtifactStore) -> ValidateResult:
    """Judge a snapshot. A breach is a verdict, not an error.

    The artifact holds `anomalies.json`, and `verdict.json` with the number of rules that were judged, the rules that
    could not be judged, and the warnings of the guards. Its statistics are an artifact that it is derived from.

    Raises:
        ConfigurationError: if the contract is invalid, or needs values of a column that the source declares sensitive.
    """
    from gatehouse.data.statistics.stage import Measurement, measurement, statistics_of, without_values
    from gatehouse.data.validation.anomalies import Findings
    from gatehouse.data.validation.checks import Judge
    from gatehouse.data.validation.contract import CONTRACT_FILE, published_contract
    from gatehouse.data.validation.rule_pieces import broken_rows
    from gatehouse.data.validation.tables import opened, tables_of

    snapshot = store.manifest(request.snapshot)
    tables = tables_of(store, request.snapshot)
    contract = published_contract(store.read_text(request.contract, CONTRACT_FILE))
    contract = contract.hiding({name: table.sensitive for name, table in tables.items()})
    references = {name: request.snapshots.get(name, name) for name in contract.snapshots()}
    references = {name: other for name, other in references.items() if references_in(other)}
    elsewhere = {name: tables_of(store, other, f"{name} ") for name, other in references.items()}
    sensitive = {name: tuple(contract.sensitive(name, table.types())) for name, table in tables.items()}
    before = statistics_of(store, request.baseline)
    measuring = MeasureRequest(name=snapshot.name, datasets=snapshot.derived_from, sensitive=sensitive, baseline=before)
    measured = measure(measuring, store, force=request.force).statistics
    current, baseline = measurement(store, measured), measurement(store, before)
    compared = Measurement(without_values(baseline.statistics, sensitive), current.rebinned, baseline.rows)
    findings = Findings()
    every = [*tables.values(), *(table for other in elsewhere.values() for table in other.values())]
    as_of = snapshot.details["as_of"]
    with store.workspace() as workspace, opened(every, workspace) as connection:
        Judge(
            connection=connection,
            tables=tables,
            contract=contract,
            as_of=datetime.fromisoformat(as_of) if as_of else None,
            statistics=current.statistics,
            baseline=compared if request.baseline else None,
            findings=findings,
            elsewhere=elsewhere,
            broken=broken_rows(store, snapshot.derived_from, request.contract, contract),
        ).run()
    inputs = {"snapshot": request.snapshot, "contract": request.contract, "statistics": measured}
    inputs |= {f"snapshot {name}": other for name, other in references.items()}
    inputs |= {"baseline": request.baseline} if request.baseline else {}
    verdict = {"judged": findings.judged, "not_judged": findings.not_judged, "delivery": request.delivery}
    # The manifest stays after an erasure, so it has no values of rows: only table and name of a guard's warning.
    delivered = [": ".join(text.split(": ")[:2]).rstrip(".") for text in request.delivery]
    reference = store.publish(
        "validations",
        snapshot.name,
        {
            "anomalies.json": canonical_json([anomaly.to_json() for anomaly in findings.sorted()]),
            "verdict.json": canonical_json(verdict),
        },
        derived_from=inputs,
        details={"verdict": findings.verdict, "warnings": [*delivered, *findings.warnings_without_values()]},
    )
    return ValidateResult(
        validation=str(reference), verdict=findings.verdict, reasons=findings.reasons(), warnings=findings.warnings()
    )
