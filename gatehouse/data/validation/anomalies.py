"""Anomalies: where a snapshot and its contract differ, and the verdict that follows."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

_MAX_REASONS = 20


@dataclass(frozen=True)
class Anomaly:
    """A rule that the data breaks, and in how many rows; None if these cannot be counted.

    The rule has `warn.` in front if it is under `warn`. The column is empty for a rule on the whole table, or several
    joined by a comma. Examples have the number of their `row` in the table, from 0, and the columns that matter.
    """

    table: str
    rule: str
    column: str
    severity: str
    owner: str
    expected: str
    observed: str
    rows: int | None = None
    examples: tuple[dict[str, Any], ...] = ()

    def __str__(self) -> str:
        where = ", ".join(str(example["row"]) for example in self.examples)
        more = ", …" * bool(self.rows and self.rows > len(self.examples))
        at = f" (row{'s' * (len(self.examples) > 1 or bool(more))} {where}{more})" if where else ""
        return f"{self.place}: {self.rule}: expected {self.expected}, found {self.observed}{at}"

    @property
    def place(self) -> str:
        """The column, or the table."""
        return f"{self.table}.{self.column}" if self.column else self.table

    @property
    def advice(self) -> str:
        """The anomaly, and what to do."""
        instead = {
            "table": f"remove {self.place} from the contract",
            "extra_columns": f"add {self.place} to the contract",
            "not checked": f"remove the rule on {self.place} from the contract, or allow that",
        }.get(self.rule, f"change {self.rule} of {self.place} in the contract")
        return f"{self}; ask {self.owner or 'its supplier'} to correct the data, or {instead}"

    def to_json(self) -> dict[str, Any]:
        """The anomaly as JSON."""
        return asdict(self) | {"examples": list(self.examples)}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> "Anomaly":
        """The anomaly that `to_json` wrote."""
        return cls(**{**body, "examples": tuple(body["examples"])})


@dataclass
class Findings:
    """The anomalies, the number of rules that were judged, and the rules that could not be judged and why."""

    anomalies: list[Anomaly] = field(default_factory=list)
    judged: int = 0
    not_judged: list[str] = field(default_factory=list)

    def add(self, anomaly: Anomaly | None) -> None:
        """Count a judged rule, and keep its anomaly."""
        self.judged += 1
        if anomaly is not None:
            self.anomalies.append(anomaly)

    def sorted(self) -> list[Anomaly]:
        """Anomalies that fail first, then by table, column and rule."""
        return sorted(
            self.anomalies,
            key=lambda anomaly: (anomaly.severity != "fail", anomaly.table, anomaly.column, anomaly.rule),
        )

    @property
    def verdict(self) -> str:
        """`fail` if any anomaly fails the contract, else `pass`."""
        return "fail" if any(anomaly.severity == "fail" for anomaly in self.anomalies) else "pass"

    def reasons(self) -> tuple[str, ...]:
        """Why the verdict is `fail`, short enough for a task's output; empty for `pass`."""
        return shortened([anomaly.advice for anomaly in self.sorted() if anomaly.severity == "fail"])

    def warnings(self) -> tuple[str, ...]:
        """Anomalies that do not fail the contract, as short as `reasons`."""
        return shortened([anomaly.advice for anomaly in self.sorted() if anomaly.severity == "warn"])

    def warnings_without_values(self) -> tuple[str, ...]:
        """The warnings without values of rows, for the manifest, which stays after an erasure."""
        warned = [anomaly for anomaly in self.sorted() if anomaly.severity == "warn"]
        return shortened([f"{anomaly.place}: {anomaly.rule} does not hold" for anomaly in warned])


def shortened(reasons: Sequence[str]) -> tuple[str, ...]:
    """The first of many reasons, and the number of the others."""
    if len(reasons) <= _MAX_REASONS:
        return tuple(reasons)
    return (*reasons[:_MAX_REASONS], f"and {len(reasons) - _MAX_REASONS} more in the report")
