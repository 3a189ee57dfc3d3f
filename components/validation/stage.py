"""The validate stage: a snapshot is measured and judged against its contract and, where there is one, a baseline."""

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pydantic import Field

from gatehouse.components.artifacts.canonical import canonical_json
from gatehouse.components.artifacts.declaration import Resources
from gatehouse.components.artifacts.identity import operational
from gatehouse.components.artifacts.reference import Reference, references_in
from gatehouse.components.artifacts.stage import StageModel, stage
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.validation.measure import MeasureRequest, baseline_of, measure, rows_of, statistics_of
from gatehouse.components.validation.spec import StatisticsSpec
from gatehouse.components.validation.statistics.document import STATISTICS_FILE

if TYPE_CHECKING:
    from gatehouse.components.validation.anomalies import Findings

CONTRACT_FILE = "contract.yaml"


class ValidateRequest(StageModel):
    """A snapshot, a contract (a configuration reference), and an earlier validation as baseline or nothing.

    `snapshots` are others that foreign keys of the contract lead to, by the name that the contract gives them.
    `statistics` says where they are computed; `force` measures again whatever the memo holds. Neither changes a result.
    """

    snapshot: str
    contract: str
    baseline: str = ""
    snapshots: dict[str, str] = Field({})
    statistics: StatisticsSpec = operational(StatisticsSpec())
    force: str = operational("")


class ValidateResult(StageModel):
    """The validation, its verdict (`pass` or `fail`), and the reasons where it is `fail`."""

    validation: str
    verdict: str
    reasons: tuple[str, ...]


@stage("validate", title="Validate against the contract", resources=Resources(cpu="2", memory="4G"))
def validate(request: ValidateRequest, store: ArtifactStore) -> ValidateResult:
    """Judge a snapshot. A breach is a verdict, not an error: the report is written either way.

    The artifact holds `verdict.json`, `anomalies.json`, `statistics.json` and `report.html`.

    Raises:
        ConfigurationError: if the contract is not one.
    """
    from gatehouse.components.validation.anomalies import Findings
    from gatehouse.components.validation.checks import Baseline, Judge
    from gatehouse.components.validation.contract import parse_contract
    from gatehouse.components.validation.report import validation_page
    from gatehouse.components.validation.statistics.document import without_values
    from gatehouse.components.validation.tables import opened, tables_of

    contract = parse_contract(store.read_text(request.contract, CONTRACT_FILE))
    snapshot = store.manifest(request.snapshot)
    tables = tables_of(store, request.snapshot)
    others = {name: request.snapshots.get(name, name) for name in contract.snapshots()}
    elsewhere = {name: tables_of(store, other, f"{name} ") for name, other in others.items() if references_in(other)}
    sensitive = {name: tuple(sorted(contract.sensitive(name, table.types()))) for name, table in tables.items()}
    wanted = MeasureRequest(
        name=snapshot.name,
        datasets=snapshot.derived_from,
        sensitive=sensitive,
        baseline=request.baseline,
        statistics=request.statistics,
    )
    measured = measure(wanted, store, force=request.force)
    statistics, rebinned = (_in_order(found, tables) for found in statistics_of(store, measured))
    baseline = without_values(_in_order(baseline_of(store, request.baseline), tables), sensitive)
    compared = Baseline(baseline, rebinned, rows_of(store, request.baseline)) if request.baseline else None
    as_of = snapshot.details["as_of"]
    findings = Findings()
    every = [*tables.values(), *(table for other in elsewhere.values() for table in other.values())]
    with store.workspace() as workspace, opened(every, workspace) as connection:
        time = datetime.fromisoformat(as_of)
        Judge(connection, tables, contract, time, statistics, compared, findings, elsewhere).run()
    rows = {name: table.rows for name, table in tables.items()}
    short = Reference.parse(request.baseline).short if request.baseline else ""
    page = validation_page(
        Reference.parse(request.snapshot).short,
        as_of,
        findings,
        statistics,
        rows,
        short,
        baseline_statistics=baseline,
        baseline_rows=compared.rows if compared else {},
        rebinned=rebinned,
    )
    inputs = {"snapshot": request.snapshot, "contract": request.contract, "statistics": measured.statistics}
    inputs |= {f"snapshot {name}": other for name, other in others.items() if name in elsewhere}
    reference = store.publish(
        "validations",
        snapshot.name,
        {
            "verdict.json": canonical_json(_verdict(findings)),
            "anomalies.json": canonical_json([one.to_json() for one in findings.sorted()]),
            STATISTICS_FILE: store.read_text(measured.statistics, STATISTICS_FILE),
            "report.html": page,
        },
        derived_from=inputs | ({"baseline": request.baseline} if request.baseline else {}),
        details={"verdict": findings.verdict},
    )
    return ValidateResult(validation=str(reference), verdict=findings.verdict, reasons=findings.reasons())


def _verdict(findings: "Findings") -> dict[str, Any]:
    return {
        "verdict": findings.verdict,
        "reasons": findings.reasons(),
        "judged": findings.judged,
        "not_judged": findings.not_judged,
    }


def _in_order(found: Mapping[str, Mapping[str, Any]], tables: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Statistics with the tables by name and the columns as they stand in the table, not in the order of JSON."""
    return {
        name: {column: found[name][column] for column in table.types() if column in found[name]}
        for name, table in sorted(tables.items())
        if name in found
    }


def show(result: ValidateResult, store: ArtifactStore, metrics: Any, report: Any) -> None:
    """Fill KFP's typed outputs (Metrics, HTML) from a validation."""
    anomalies = store.read_json(result.validation, "anomalies.json")
    metrics.log_metric("failed", sum(one["severity"] == "fail" for one in anomalies))
    metrics.log_metric("warned", sum(one["severity"] == "warn" for one in anomalies))
    metrics.log_metric("rules judged", store.read_json(result.validation, "verdict.json")["judged"])
    store.copy(result.validation, "report.html", report.path)
    report.metadata["reference"] = store.address_of(result.validation)
