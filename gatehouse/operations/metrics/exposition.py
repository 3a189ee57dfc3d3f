"""The operations table for Prometheus: in its text format, and pushed to a gateway if one is set.

A value that was not measured has no sample. A push replaces earlier values of the same project.
"""

import logging
import os
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from urllib.parse import quote

from gatehouse.errors import ConfigurationError
from gatehouse.operations.metrics.rows import Row
from gatehouse.operations.metrics.summary import Totals, gate_outcomes, totals
from gatehouse.runtime.redaction import require_encoded

logger = logging.getLogger(__name__)

ENDPOINT = "GATEHOUSE_METRICS_ENDPOINT"
"""Environment variable with the address of a Prometheus Pushgateway."""
_TIMEOUT = 10.0
_FAMILIES = {
    "runs": ("counter", "Runs of a pipeline, or tasks of a stage, that ended."),
    "runs_good": ("counter", "Of these, the ones that ended well."),
    "runs_from_memo": ("counter", "Of these, the ones whose result came from the memo."),
    "retries": ("counter", "Attempts beyond the first."),
    "seconds_median": ("gauge", "Median duration of those that did work."),
    "queue_seconds_median": ("gauge", "Median time that they waited before they began."),
    "last_ended_timestamp_seconds": ("gauge", "When the last one ended."),
    "last_good": ("gauge", "Whether the last one ended well."),
    "rows_in": ("gauge", "Rows that the last one took in."),
    "rows_rejected": ("gauge", "Rows that the last one set aside."),
    "data_age_hours": ("gauge", "Age of the newest data when the last one began."),
    "cost": ("counter", "What all of them cost."),
    "data_to_model_seconds_median": ("gauge", "From the start of the snapshot to an approved model."),
    "gpu_percent_median": ("gauge", "Mean utilisation of GPUs while they were trained on."),
}


def exposition(rows: Iterable[Row]) -> str:
    """Rows of the table in Prometheus' text format, version 0.0.4."""
    listed = list(rows)
    samples = [(dict(_labels(one)), dict(_values(one))) for one in totals(listed)]
    lines: list[str] = []
    for name, (kind, said) in _FAMILIES.items():
        known = [(labels, values[name]) for labels, values in samples if values[name] is not None]
        lines += _family(f"gatehouse_{name}", kind, said, known)
    decided = [
        ({"project": project, "decision": decision}, float(count))
        for project in sorted({row.project for row in listed})
        for decision, count in gate_outcomes(row for row in listed if row.project == project).items()
    ]
    lines += _family("gatehouse_gate_decisions", "counter", "Decisions of the gate on candidates.", decided)
    return "\n".join(lines) + "\n"


def push(project: str, rows: Iterable[Row]) -> str:
    """Push a project's rows to the gateway in the environment; an error is logged and returned.

    Args:
        project: The project.
        rows: Rows of the table, of any project.

    Returns:
        Why the push failed; empty if it succeeded, or if no gateway is set.
    """
    endpoint = os.environ.get(ENDPOINT, "").strip().rstrip("/")
    if not endpoint:
        return ""
    try:
        require_encoded(endpoint, ENDPOINT, bare=True)
    except ConfigurationError as error:
        return str(error)
    if not endpoint.startswith(("http://", "https://")):
        return f"{ENDPOINT} has no http or https address"
    request = urllib.request.Request(
        f"{endpoint}/metrics/job/gatehouse/project/{quote(project, safe='')}",
        exposition(row for row in rows if row.project == project).encode(),
        {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"},
        method="PUT",
    )
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT):
            return ""
    except (OSError, ValueError) as error:
        why = f"answered {error.code}" if isinstance(error, urllib.error.HTTPError) else type(error).__name__
        logger.warning("The metrics gateway took nothing: %s.", why)
        return f"the metrics gateway took nothing: {why}"


def _labels(one: Totals) -> Iterator[tuple[str, str]]:
    yield "project", one.project
    yield "pipeline", one.pipeline
    yield "stage", one.stage


def _values(one: Totals) -> Iterator[tuple[str, float | None]]:
    yield "runs", one.runs
    yield "runs_good", one.good
    yield "runs_from_memo", one.memo
    yield "retries", one.retries
    yield "seconds_median", one.median_seconds
    yield "queue_seconds_median", one.queue_seconds
    yield "last_ended_timestamp_seconds", one.last_ended
    yield "last_good", float(one.last_state in ("finished", "hit", "succeeded"))
    yield "rows_in", one.rows_in
    yield "rows_rejected", one.rows_rejected
    yield "data_age_hours", one.data_age_hours
    yield "cost", one.cost
    yield "data_to_model_seconds_median", one.data_to_model_seconds
    yield "gpu_percent_median", one.gpu_percent


def _family(name: str, kind: str, said: str, samples: Iterable[tuple[dict[str, str], float | None]]) -> list[str]:
    full = f"{name}_total" if kind == "counter" else name
    lines = [f"{full}{{{_written(labels)}}} {value!r}" for labels, value in samples]
    return [f"# HELP {full} {said}", f"# TYPE {full} {kind}", *lines] if lines else []


def _written(labels: dict[str, str]) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
