"""The stage that tries a candidate as serving would have it, before the gate judges it."""

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
    IntegrationSpec,
    reasons_of,
    told_of,
)
from gatehouse.store.canonical import canonical_json
from gatehouse.store.hidden_values import unless_hidden
from gatehouse.store.identity import identity_of, operational
from gatehouse.store.reference import Reference
from gatehouse.store.stage import Resources, StageModel, stage
from gatehouse.store.store import ArtifactStore

if TYPE_CHECKING:
    from gatehouse.metrics.catalogue.metric import Array

PROGRAM = "gatehouse.evaluation.integration.serving"


class IntegrateRequest(StageModel):
    """A candidate, the data whose test rows it is asked about, and the project's own tests.

    Attributes:
        model: Reference of the candidate.
        training_set: Reference of the training set.
        split: Reference of its split.
        tests: Reference of the project's test files; empty for none.
        online: Reference of the comparison of its online features with the offline ones; empty for none.
        spec: What is asked, as an IntegrationSpec.
        seconds: After which the project's tests are ended.
    """

    model: str
    training_set: str
    split: str
    tests: str = ""
    online: str = ""
    spec: IntegrationSpec
    seconds: int = operational(900)


class IntegrateResult(StageModel):
    """What was found; the verdict, the reasons where it is no pass, and what was not checked."""

    integration: str
    verdict: Literal["pass", "fail"]
    reasons: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def provisional(self) -> bool:
        """A failed suite is tried again when it is requested again: what it tells, errors say, which are in no key."""
        return self.verdict == "fail"


@stage(
    "integrate",
    title="Try the candidate",
    resources=Resources(cpu="2", memory="4G", minutes=45),
    pages={"integrations": "gatehouse.evaluation.integration.report:page"},
    section="integration",
)
def integrate(request: IntegrateRequest, store: ArtifactStore) -> IntegrateResult:
    """Ask the candidate in a process of its own, which has the store alone; a failure is a verdict, not an error.

    `integration.json` holds each check with its verdict, and `golden.parquet` the numbers of the rows that were asked
    and their predictions, which the evaluation holds its own against. What it took is recorded beside the candidate,
    under `measurements/`, and in the artifact where it is bounded.

    Raises:
        UnusablePartError: if the test part cannot be judged on.
        ConfigurationError: if the comparison of online features is that of another training set.
        UntriedError: if a limit of time, a signal or the store kept the candidate from being tried.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    from gatehouse.data.splitting.parts import read_part
    from gatehouse.training.scoring.predictor import Predictor

    predictor = Predictor.load(store, request.model)
    part = read_part(store, request.training_set, request.split, "test", predictor.task).thinned(request.spec.rows)
    predicted = predictor.predict(part.table)
    with store.workspace() as workspace:
        rows, golden = workspace / "rows.parquet", workspace / GOLDEN
        pq.write_table(part.table, rows)
        columns = {"row": pa.array(part.rows), "prediction": pa.array(predicted.tolist())}
        pq.write_table(pa.table(columns), golden)
        checks = [*_served(request, store, rows, predicted)]
        checks += _online(request, store)
        checks.append(_tested(request, store, rows, workspace / "tests"))
        details, told = _details(checks)
        published = store.publish(
            "integrations",
            Reference.parse(request.model).name,
            {FILE: canonical_json(checks), GOLDEN: golden},
            derived_from={role: made for role in _INPUTS if (made := getattr(request, role))},
            configuration=identity_of(request.spec),
            details=details,
        )
    return IntegrateResult(integration=str(published), **told)


_INPUTS = ("model", "training_set", "split", "tests", "online")


def _details(checks: list[dict[str, str]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the manifest says, which stays after an erasure and has no values of rows; and what the result says."""
    verdict = FAIL if told_of(checks, FAIL) else PASS
    online = next(each["verdict"] for each in checks if each["check"] == ONLINE)
    return {"verdict": verdict, "online": online}, {"verdict": verdict, **reasons_of(checks)}


def _check(name: str, problems: list[str], well: str) -> dict[str, str]:
    return {"check": name, "verdict": FAIL if problems else PASS, "found": "; ".join(problems) or well}


def _served(
    request: IntegrateRequest, store: ArtifactStore, rows: Path, predicted: "Array"
) -> Iterator[dict[str, str]]:
    """What a process that has nothing but the store answers."""
    answers, problem = _answers(request, store, rows, serving_seconds(len(predicted)))
    yield _check("load", [problem] if problem else [], "loaded from the store alone")
    if problem:
        return
    expected = predicted.tolist()
    differing = [
        f"{sum(one != other for one, other in zip(found, expected, strict=True))} of {len(expected)} rows score "
        f"otherwise {how}"
        for how, found in answers["predictions"].items()
        if found != expected
    ]
    yield _check("golden batch", differing, f"{len(expected)} rows, the same to the bit as a batch, alone and as JSON")
    unclear = [
        f"{asked}, found {unless_hidden(found)}"
        for asked, _, found in (each.partition(", found ") for each in answers["schema"])
    ]
    yield _check("schema", unclear, "missing values of a feature, wrong types and infinity are refused")
    taken = {"latency": answers["latency"], "memory_mb": answers["memory_mb"]}
    store.append(f"measurements/{request.model}", {"stage": "integrate"} | taken)
    yield _bounded("latency", request.spec.latency_ms, answers["latency"]["single_row_ms"]["p95"], "ms")
    yield _bounded("memory", request.spec.memory_mb, answers["memory_mb"], "MB")


def serving_seconds(rows: int) -> float:
    """How long serving may take: five minutes, and 0.1 s for each row, which is asked alone twice."""
    return 300 + 0.1 * rows


def _answers(request: IntegrateRequest, store: ArtifactStore, rows: Path, seconds: float) -> tuple[dict[str, Any], str]:
    """What the program answers, and why there is no answer."""
    import json

    from gatehouse.evaluation.integration.child import require_permanent, run

    told = rows.with_name("answers.json")
    code, said = run(["-m", PROGRAM, store.address, request.model, str(rows), str(told)], seconds, rows.parent)
    if code or not told.exists():
        return {}, f"the process ended with {code}: {said}"
    answers = json.loads(told.read_text())
    if error := answers.get("error"):
        require_permanent(error)
        return {}, f"{error['name']}: {unless_hidden(error['message'])}"
    return answers, ""


def _bounded(name: str, most: float | None, value: float, unit: str) -> dict[str, str]:
    """A number is told only where it is bounded: else equal candidates would have other artifacts each time."""
    if most is None:
        return _check(name, [], "measured, and not bounded")
    told = f"{value:.4g} {unit}"
    return _check(name, [] if value <= most else [f"expected at most {most:g} {unit}, found {told}"], told)


def _online(request: IntegrateRequest, store: ArtifactStore) -> Iterator[dict[str, str]]:
    """What came of the comparison, which must be of the training set that the candidate is asked about.

    Where it passed and leaves views out, these follow as not checked.
    """
    if not request.online:
        yield {"check": ONLINE, "verdict": NOT_CHECKED, "found": "they were not compared"}
        return
    manifest = store.manifest(request.online)
    if (compared := manifest.derived_from.get("training_set")) != request.training_set:
        raise ConfigurationError(
            f"online: expected the comparison of {request.training_set}, found {request.online}, the comparison of "
            f"{compared}. Give that of this training set."
        )
    details = manifest.details
    told = "; ".join(details["reasons"])
    if details["verdict"] == PASS:
        yield _check(ONLINE, [], f"{details['values']} values are the same online")
    if details["verdict"] != PASS or told:
        verdict = NOT_CHECKED if details["verdict"] == PASS else details["verdict"]
        yield {"check": ONLINE, "verdict": verdict, "found": told}


def _tested(request: IntegrateRequest, store: ArtifactStore, rows: Path, folder: Path) -> dict[str, str]:
    from gatehouse.evaluation.integration.project_tests import failures

    if not request.tests:
        return {"check": "tests of the project", "verdict": NOT_CHECKED, "found": "there are none"}
    folder.mkdir()
    found = list(failures(store, request.model, request.tests, rows, folder, request.seconds))
    return _check("tests of the project", found, "all passed")
