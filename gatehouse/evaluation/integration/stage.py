"""The stage that tries a candidate as serving would use it, before the gate judges it."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from gatehouse.errors import ConfigurationError, GatehouseError
from gatehouse.evaluation.spec import (
    FAIL,
    GOLDEN,
    NOT_CHECKED,
    ONLINE,
    PASS,
    SUITE_FILE,
    Check,
    IntegrationSpec,
    is_test_file,
    reasons_of,
)
from gatehouse.runtime.process import stop_tree
from gatehouse.store.canonical import canonical_json
from gatehouse.store.hidden_values import hidden_columns, unless_hidden
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
    pages={"integrations": "gatehouse.evaluation.report:integration_page"},
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
    from gatehouse.training.predictor import Predictor

    predictor, training_set = Predictor.load(store, request.model), divided_set(store, request.split)
    part = read_part(store, training_set, request.split, "test", predictor.task).thinned(request.spec.rows)
    table = part.table
    predicted = predictor.predict(table)
    with store.workspace() as workspace:
        rows, golden = workspace / "rows.parquet", workspace / GOLDEN
        pq.write_table(table, rows)
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
            {SUITE_FILE: canonical_json(checks), GOLDEN: golden},
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


class UntriedError(GatehouseError):
    """A time limit, a signal or the store ended a try of the candidate: another attempt may have another outcome."""


def run(
    arguments: list[str], seconds: float, folder: Path, environment: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """Run a Python program; return its exit code and the last line that it wrote, unless values are hidden.

    Its child processes are ended too. Raises UntriedError if it takes longer, or a signal ends it.
    """
    with tempfile.TemporaryFile("w+", errors="replace") as written:
        child = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=written,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=environment,
            start_new_session=True,
        )
        try:
            code = child.wait(seconds)
        except subprocess.TimeoutExpired:
            raise UntriedError(
                f"{' '.join(arguments[:2])}: expected it to end within {seconds:g} s, but it is still running."
            ) from None
        finally:
            stop_tree(child.pid, grace=0.0)
            with contextlib.suppress(ProcessLookupError):  # Nobody of the group is left.
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        written.seek(0)
        lines = written.read().strip().splitlines()
    if code < 0:
        raise UntriedError(
            f"{' '.join(arguments[:2])}: expected an exit code, but it was ended by {signal.Signals(-code).name}."
        )
    return code, unless_hidden(lines[-1]) if lines else "it wrote nothing"


def require_permanent(error: Mapping[str, Any]) -> None:
    """Check that the error that a program recorded is permanent: that every further attempt would meet it too.

    Raises UntriedError if another attempt may end otherwise.
    """
    if not error["permanent"]:
        message = unless_hidden(error["message"]).rstrip(".")
        raise UntriedError(f"The candidate could not be tried: {error['name']}: {message}. Run again.")


PLUGIN = "gatehouse.evaluation.integration.candidate"


def failures(store: ArtifactStore, model: str, tests: str, rows: Path, folder: Path, seconds: float) -> Iterator[str]:
    """The tests of a project that did not pass, by name; empty where every test of every file passed.

    Settings of the environment and of the project's own `pytest.ini` do not count: nothing may leave tests out. Raises
    UntriedError if they take longer, a signal ends them, or the store does not give them the candidate.
    """
    from gatehouse.evaluation.integration import candidate

    tried, outcome = folder / "integration", folder / "outcome.json"
    files = [entry.path for entry in store.manifest(tests).files]
    for name in files:
        store.copy(tests, name, tried / name)
    settings = folder / "settings.ini"
    settings.write_text("[pytest]\naddopts =\n")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV_"))}
    environment = kept | {
        candidate.STORE: store.address,
        candidate.MODEL: model,
        candidate.ROWS: str(rows),
        candidate.OUTCOME: str(outcome),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    options = ["-p", PLUGIN, "-p", "no:cacheprovider", "-c", str(settings), "--rootdir", str(tried)]
    options += ["--continue-on-collection-errors", "-q"]
    code, line = run(["-m", "pytest", *options, str(tried)], seconds, folder, environment)
    if not outcome.exists():
        yield f"the tests ended with {code} before all had run: {line}"
        return
    ended = json.loads(outcome.read_text())
    for error in ended["errors"]:
        require_permanent(error)
    # Where values are hidden, the parameters of a test are too: the tests of one function are then one line.
    yield from dict.fromkeys(_shown(name, why) for name, why in sorted(ended["problems"].items()))
    ran = {name.partition("::")[0] for name in (*ended["passed"], *ended["problems"])}
    yield from (f"{name}: no test of it ran" for name in files if is_test_file(name) and name not in ran)
    if not ended["problems"] and (ended["exit"] or not ended["passed"]):
        yield f"pytest ended with {ended['exit']} after {len(ended['passed'])} tests"


def _shown(name: str, why: str) -> str:
    """A test and why it has not passed; the values of its parameters, and its own words, may quote a golden row."""
    shown = name.partition("[")[0] if hidden_columns() else name
    outcome, _, words = why.partition(": ")
    if outcome in ("was skipped", "is expected to fail"):
        why = f"{outcome}: {unless_hidden(words)}"
    elif outcome != "was deselected":
        why = unless_hidden(why)
    return f"{shown or 'collection'}: {why}"
