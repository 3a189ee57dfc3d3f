"""The stage that tries a candidate as serving would use it, before the gate judges it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from gatehouse.errors import ConfigurationError
from gatehouse.evaluation.integration.spec import (
    FAIL,
    FILE,
    GOLDEN,
    NOT_CHECKED,
    ONLINE,
    PASS,
    Check,
    IntegrationSpec,
    reasons_of,
)
from gatehouse.store.canonical import canonical_json
from gatehouse.store.hidden_values import unless_hidden
from gatehouse.store.identity import identity_of, operational
from gatehouse.store.reference import Reference
from gatehouse.store.stage import StageModel, stage
from gatehouse.store.store import ArtifactStore

if TYPE_CHECKING:
    from gatehouse.metrics.metric import Array

PROGRAM = "gatehouse.evaluation.integration.serving"
_INPUTS = ("model", "split", "tests", "online")


class IntegrateRequest(StageModel):
    """A candidate, the data whose test rows it scores, and the project's own tests with their time limit.

    `online` is the comparison of its online features with the offline ones; empty for none.
    """

    model: str
    split: str
    tests: str = ""
    online: str = ""
    spec: IntegrationSpec
    seconds: int = operational(900)


class IntegrateResult(StageModel):
    """The suite's artifact and verdict, the reasons of a failure, and as warnings what was not checked."""

    integration: str
    verdict: Literal["pass", "fail"]
    reasons: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def provisional(self) -> bool:
        """A failed suite is tried again when it is requested again: its reasons quote errors, which are in no key."""
        return self.verdict == "fail"


@stage(
    "integrate",
    title="Try the candidate",
    pages={"integrations": "gatehouse.evaluation.integration.report:page"},
    section="integration",
)
def integrate(request: IntegrateRequest, store: ArtifactStore) -> IntegrateResult:
    """Try the candidate in a process of its own, which has the store alone; a failure is a verdict, not an error.

    `integration.json` holds each check with its verdict, and `golden.parquet` the numbers of the golden rows and their
    predictions, which the evaluation compares with its own. Latency and memory are recorded beside the candidate, under
    `measurements/`, and in the artifact where they are bounded.

    Raises:
        UnusablePartError: if the test part cannot be judged on.
        ConfigurationError: if the comparison of online features is of another training set.
        UntriedError: if a time limit, a signal or the store kept the candidate from being tried.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    from gatehouse.data.splitting.parts import divided_set, read_part
    from gatehouse.evaluation.integration.child import failures
    from gatehouse.training.predictor import Predictor

    predictor, training_set = Predictor.load(store, request.model), divided_set(store, request.split)
    part = read_part(store, training_set, request.split, "test", predictor.task).thinned(request.spec.rows)
    predicted = predictor.predict(part.table)
    with store.workspace() as workspace:
        rows, golden = workspace / "rows.parquet", workspace / GOLDEN
        pq.write_table(part.table, rows)
        columns = {"row": pa.array(part.rows), "prediction": pa.array(predicted.tolist())}
        pq.write_table(pa.table(columns), golden)
        checks = [*_served(request, store, rows, predicted), *_online(store, request.online, training_set)]
        if request.tests:
            folder = workspace / "tests"
            folder.mkdir()
            failed = list(failures(store, request.model, request.tests, rows, folder, request.seconds))
            checks.append(_check("tests of the project", failed, "all passed"))
        else:
            checks.append({"check": "tests of the project", "verdict": NOT_CHECKED, "observed": "there are none"})
        reasons = reasons_of(checks)
        verdict: Literal["pass", "fail"] = "fail" if reasons["reasons"] else "pass"
        online = next(check["verdict"] for check in checks if check["check"] == ONLINE)
        published = store.publish(
            "integrations",
            Reference.parse(request.model).name,
            {FILE: canonical_json(checks), GOLDEN: golden},
            derived_from={"training_set": training_set}
            | {role: reference for role in _INPUTS if (reference := getattr(request, role))},
            configuration=identity_of(request.spec),
            details={"verdict": verdict, "online": online},  # Stays after an erasure: no values of rows.
        )
    return IntegrateResult(integration=str(published), verdict=verdict, **reasons)


def _check(name: str, problems: list[str], success: str) -> Check:
    return {"check": name, "verdict": FAIL if problems else PASS, "observed": "; ".join(problems) or success}


def _served(request: IntegrateRequest, store: ArtifactStore, rows: Path, predicted: "Array") -> Iterator[Check]:
    """The checks of the answers from a process that has nothing but the store."""
    answers, problem = _answers(request, store, rows, 300 + 0.1 * len(predicted))  # Each row is scored alone twice.
    yield _check("load", [problem] if problem else [], "loaded from the store alone")
    if problem:
        return
    expected = predicted.tolist()
    differing = []
    for how, scores in answers["predictions"].items():
        if wrong := sum(score != own for score, own in zip(scores, expected, strict=True)):
            differing.append(f"{wrong} of {len(expected)} rows score otherwise {how}")
    yield _check("golden batch", differing, f"{len(expected)} rows, the same to the bit as a batch, alone and as JSON")
    parts = (unclear.partition(", found ") for unclear in answers["schema"])
    unclear = [f"{expectation}, found {unless_hidden(answer)}" for expectation, _, answer in parts]
    yield _check("schema", unclear, "missing values of a feature, wrong types and infinity are refused")
    measured = {"latency": answers["latency"], "memory_mb": answers["memory_mb"]}
    store.append(f"measurements/{request.model}", {"stage": "integrate"} | measured)
    spec, latency = request.spec, answers["latency"]["single_row_ms"]["p95"]
    bounds = ("latency", spec.latency_ms, latency, "ms"), ("memory", spec.memory_mb, answers["memory_mb"], "MB")
    for name, most, value, unit in bounds:
        if most is None:  # Without the value: equal candidates would have another artifact each time.
            yield _check(name, [], "measured, and not bounded")
        else:
            shown = f"{value:.4g} {unit}"
            problems = [] if value <= most else [f"expected at most {most:g} {unit}, found {shown}"]
            yield _check(name, problems, shown)


def _answers(request: IntegrateRequest, store: ArtifactStore, rows: Path, seconds: float) -> tuple[dict[str, Any], str]:
    """The answers of the serving program, and why there are none."""
    from gatehouse.evaluation.integration.child import require_permanent, run

    file = rows.with_name("answers.json")
    code, line = run(["-m", PROGRAM, store.address, request.model, str(rows), str(file)], seconds, rows.parent)
    if code or not file.exists():
        return {}, f"the process ended with {code}: {line}"
    answers = json.loads(file.read_text())
    if error := answers.get("error"):
        require_permanent(error)
        return {}, f"{error['name']}: {unless_hidden(error['message'])}"
    return answers, ""


def _online(store: ArtifactStore, comparison: str, training_set: str) -> Iterator[Check]:
    """The result of the comparison of online features; views that it leaves out follow as not checked."""
    if not comparison:
        yield {"check": ONLINE, "verdict": NOT_CHECKED, "observed": "they were not compared"}
        return
    manifest = store.manifest(comparison)
    if (compared := manifest.derived_from.get("training_set")) != training_set:
        raise ConfigurationError(
            f"online: expected the comparison of {training_set}, found {comparison}, the comparison of {compared}."
        )
    details = manifest.details
    reasons, passed = "; ".join(details["reasons"]), details["verdict"] == PASS
    if passed:
        yield _check(ONLINE, [], f"{details['values']} values are the same online")
    if not passed or reasons:
        yield {"check": ONLINE, "verdict": NOT_CHECKED if passed else details["verdict"], "observed": reasons}
