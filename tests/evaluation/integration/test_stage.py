"""The integration suite: a good candidate passes, and whatever is wrong with one, or with a test, is told by name."""

import contextlib
import os
import select
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gatehouse.data.splitting.parts import read_part
from gatehouse.errors import GatehouseError
from gatehouse.evaluation.integration import serving
from gatehouse.evaluation.integration import stage as integration
from gatehouse.evaluation.integration.stage import (
    IntegrateRequest,
    IntegrateResult,
    UntriedError,
    _served,
    failures,
    integrate,
    run,
)
from gatehouse.evaluation.report import integration_page as page
from gatehouse.evaluation.spec import IntegrationSpec
from gatehouse.metrics.tasks import BINARY
from gatehouse.store.hidden_values import hiding
from gatehouse.store.store import ArtifactStore
from gatehouse.training.predictor import Predictor
from tests.evaluation.candidates import publish_model
from tests.evaluation.conftest import Bench
from tests.training.synthetic import lay_out

GOOD = """
def test_a_longer_flight_is_later(candidate, golden_rows):
    near, far = candidate.predict_online([dict(golden_rows.to_pylist()[0], distance=d) for d in (300.0, 2500.0)])
    assert near < far

def test_it_ends_with_the_stage():
    import ctypes, os
    ending = ctypes.c_int()
    ctypes.CDLL(None).prctl(2, ctypes.byref(ending))  # PR_GET_PDEATHSIG
    assert (ending.value, os.getsid(0)) == (9, os.getpid())
"""


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """A model on the small training set."""
    store = ArtifactStore.open(tmp_path_factory.mktemp("bench"))
    training_set, split = lay_out(store)
    return Bench(store, training_set, split, {"good": publish_model(store, training_set, split)})


def tried(
    bench: Bench, tests: dict[str, str] | None = None, force: str = "", online: str = "", **spec: float
) -> IntegrateResult:
    """Try the model of the bench."""
    published = str(bench.store.publish("config", "shop-integration", tests)) if tests else ""
    data = {"split": bench.split, "tests": published, "online": online}
    request = IntegrateRequest(model=bench.models["good"], **data, spec=IntegrationSpec.model_validate(spec))
    return integrate(request, bench.store, force=force)


@pytest.fixture(scope="module")
def passed(bench: Bench) -> IntegrateResult:
    """The suite of a good candidate, with a test of the project."""
    return tried(bench, {"test_sense.py": GOOD}, rows=10)


def test_a_good_candidate_passes_and_leaves_its_golden_batch(bench: Bench, passed: IntegrateResult) -> None:
    assert (passed.verdict, passed.reasons) == ("pass", ())
    assert passed.warnings == ("online features: they were not compared (not checked)",)
    checks = bench.store.read_json(passed.integration, "integration.json")
    assert {check["check"]: check["verdict"] for check in checks} == {
        "load": "pass",
        "golden batch": "pass",
        "schema": "pass",
        "latency": "pass",
        "memory": "pass",
        "online features": "not checked",
        "tests of the project": "pass",
    }
    golden = pq.read_table(bench.store.path(passed.integration, "golden.parquet"))
    part = read_part(bench.store, bench.training_set, bench.split, "test", BINARY).thinned(10)
    assert golden["row"].to_pylist() == part.rows.tolist()
    predicted = Predictor.load(bench.store, bench.models["good"]).predict(part.table)
    assert golden["prediction"].to_pylist() == predicted.tolist()
    assert "all passed" in page(bench.store, passed.integration)


def test_what_is_measured_is_beside_the_candidate_and_in_the_artifact_where_it_is_bounded(
    bench: Bench, passed: IntegrateResult
) -> None:
    (kept,) = bench.store.objects.list(f"measurements/{bench.models['good']}")
    assert b'"memory_mb"' in bench.store.objects.get_bytes(kept)
    assert not [e for e in bench.store.read_json(passed.integration, "integration.json") if " MB" in e["observed"]]
    failed = tried(bench, rows=10, latency_ms=1e-6, memory_mb=0.5)
    assert failed.verdict == "fail"
    assert [reason.partition(" MB")[0].partition(" ms")[0] for reason in failed.reasons] == [
        "latency: expected at most 1e-06",
        "memory: expected at most 0.5",
    ]
    assert failed.warnings[1:] == ("tests of the project: there are none (not checked)",)
    # The manifest stays after an erasure, and what a check found may quote a row.
    assert bench.store.manifest(failed.integration).details == {"verdict": "fail", "online": "not checked"}


@pytest.mark.parametrize(
    ("verdict", "reasons", "observed"),
    [
        ("pass", [], "7 values are the same online"),
        ("fail", ["turnover 3", "share 2"], "turnover 3; share 2"),
        ("not checked", ["holds nothing of sales"], "holds nothing of sales"),
    ],
)
def test_the_comparison_of_online_features_is_a_check(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, verdict: str, reasons: list[str], observed: str
) -> None:
    monkeypatch.setattr("gatehouse.evaluation.integration.stage._served", lambda *_: ())  # It is tried above.
    details = {"verdict": verdict, "reasons": reasons, "values": 7}
    made = {"training_set": bench.training_set}
    online = str(bench.store.publish("online-comparisons", "both", {}, derived_from=made, details=details))
    result = tried(bench, online=online)
    (check, _) = bench.store.read_json(result.integration, "integration.json")
    assert check == {"check": "online features", "verdict": verdict, "observed": observed}
    assert result.verdict == ("fail" if verdict == "fail" else "pass")
    assert result.reasons == ((f"online features: {observed}",) if verdict == "fail" else ())
    assert (f"online features: {observed} (not checked)" in result.warnings) is (verdict == "not checked")
    manifest = bench.store.manifest(result.integration)
    assert (manifest.derived_from["online"], manifest.details["online"]) == (online, verdict)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (({}, "the process ended with 1: gone"), "load: the process ended with 1: gone"),
        (([0.5] * 10, ""), "golden batch: 10 of 10 rows score otherwise row by row"),
        (([float("nan")] * 10, ""), "golden batch: 10 of 10 rows score otherwise row by row"),
    ],
)
def test_other_answers_than_those_of_the_training_code_fail(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, answer: tuple[object, str], reason: str
) -> None:
    reported = {"schema": [], "latency": {"single_row_ms": {"p95": 1.0}}, "memory_mb": 1.0}
    reported["predictions"] = {"row by row": answer[0]}
    # No real candidate answers so.
    monkeypatch.setattr("gatehouse.evaluation.integration.stage._answers", lambda *_: (reported, answer[1]))
    result = tried(bench, force=str(answer), rows=10)
    assert (result.verdict, result.reasons) == ("fail", (reason,))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({}, None),
        ({"distance": 0.5}, "distance a text: expected an error that names the feature, found the prediction 0.5"),
        ({"distance": KeyError("x")}, "distance a text: expected an error that names the feature, found KeyError: 'x'"),
    ],
)
def test_a_request_that_is_none_must_be_refused_by_name(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, change: dict[str, object], problem: str | None
) -> None:
    predictor = Predictor.load(bench.store, bench.models["good"])
    row = read_part(bench.store, bench.training_set, bench.split, "test", BINARY).table.to_pylist()[0]
    predict = predictor.predict_online

    def other(rows: list[dict[str, object]]) -> object:
        if change and rows[0].get("distance") == "much":
            if isinstance(change["distance"], Exception):
                raise change["distance"]
            return pa.array([change["distance"]]).to_numpy()
        return predict(rows)

    monkeypatch.setattr(predictor, "predict_online", other)  # No real one takes what it should refuse.
    assert list(serving._unclear(predictor, row)) == ([problem] if problem else [])


def _failures(bench: Bench, tests: dict[str, str], folder: Path) -> Iterator[str]:
    reference = str(bench.store.publish("config", "shop-integration", tests))
    return failures(bench.store, bench.models["good"], reference, folder / "rows.parquet", folder, 120)


def test_nothing_that_has_not_passed_is_hidden(bench: Bench, tmp_path: Path) -> None:
    tests = {
        "conftest.py": "collect_ignore = ['test_hidden.py']\n"
        "def pytest_collection_modifyitems(config, items):\n"
        "    out = [each for each in items if each.name == 'test_left_out']\n"
        "    config.hook.pytest_deselected(items=out)\n"
        "    items[:] = [each for each in items if each not in out]\n",
        "pytest.ini": "[pytest]\naddopts = -k nothing\n",
        "test_good.py": "def test_good(): pass\ndef test_left_out(): assert False\n",
        "test_bad.py": "def test_bad(): assert 1 == 2\n",
        "test_broken.py": "import no_such_module\n",
        "test_hidden.py": "def test_hidden(): assert False\n",
        "deep/test_empty.py": "",
        "test_skipped.py": "import pytest\n@pytest.mark.skip(reason='later')\ndef test_skipped(): pass\n",
        "test_expected.py": "import pytest\n@pytest.mark.xfail(reason='known')\ndef test_expected(): assert False\n",
        "test_torn.py": "import pytest\n@pytest.fixture\ndef torn():\n    yield\n    raise OSError('gone')\n"
        "def test_torn(torn): pass\n",
        "test_module.py": "import pytest\npytest.skip('not here', allow_module_level=True)\n",
    }
    assert set(_failures(bench, tests, tmp_path)) == {
        "test_bad.py::test_bad: assert 1 == 2",
        "test_broken.py: E   ModuleNotFoundError: No module named 'no_such_module'",
        "test_hidden.py: no test of it ran",
        "deep/test_empty.py: no test of it ran",
        "test_skipped.py::test_skipped: was skipped: Skipped: later",
        "test_expected.py::test_expected: is expected to fail: known",
        "test_torn.py::test_torn: OSError: gone",
        "test_module.py: was skipped: Skipped: not here",
        "test_good.py::test_left_out: was deselected",
    }


QUOTING = """
import pytest
rows = pytest.mark.parametrize("row", [f"91827{n}" for n in range(3)])
@rows
def test_skips(row): pytest.skip(f"row {row}")
@rows
def test_fails(row): assert row == "none"
@pytest.mark.xfail(reason="row 918273")
def test_expected(): assert False
"""


@pytest.mark.parametrize(("sensitive", "answer"), [((), "KeyError: 918273"), (("name",), "not shown, as columns are")])
def test_what_a_request_was_answered_with_is_hidden_where_a_column_is_sensitive(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sensitive: tuple[str, ...], answer: str
) -> None:
    expected = "distance a text: expected an error that names the feature, found"
    answers = {"predictions": {}, "schema": [f"{expected} KeyError: 918273"], "memory_mb": 1.0}
    answers["latency"] = {"single_row_ms": {"p95": 1.0}}
    asked_for = "gatehouse.evaluation.integration.stage._answers"
    monkeypatch.setattr(asked_for, lambda *_: (answers, ""))  # No real candidate answers so.
    request = IntegrateRequest(model=bench.models["good"], split=bench.split, spec=IntegrationSpec())
    with hiding(lambda: sensitive):
        (result,) = [entry["observed"] for entry in _served(request, bench.store, tmp_path, np.array([0.5]))][2:3]
    assert result.startswith(f"{expected} {answer}") and ("918273" in result) == (not sensitive)


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ("import os\ndef test_ends(): os._exit(0)\n", "the tests ended with 0 before all had run"),
        ("import pytest\ndef test_leaves(): pytest.exit('enough', 0)\n", "pytest ended with 0 after 0 tests"),
    ],
)
def test_tests_that_end_early_have_not_passed(bench: Bench, tmp_path: Path, test: str, expected: str) -> None:
    assert list(_failures(bench, {"test_it.py": test}, tmp_path))[-1].startswith(expected)


@pytest.mark.parametrize(("permanent", "reasons"), [(False, None), (True, ("load: GatehouseError: no answer",))])
def test_an_error_that_may_pass_is_no_verdict(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, permanent: bool, reasons: tuple[str, ...] | None
) -> None:
    def fail(*_: object) -> None:
        raise error

    def served(arguments: list[str], *_: object) -> tuple[int, str]:
        serving.main(*arguments[2:])
        return 0, ""

    error = GatehouseError("no answer")
    error.permanent = permanent
    ended: list[bool] = []
    monkeypatch.setattr(serving, "die_with_parent", lambda: ended.append(True))
    monkeypatch.setattr(serving, "_answers", fail)
    monkeypatch.setattr(integration, "run", served)
    if reasons is None:
        with pytest.raises(UntriedError, match="could not be tried: GatehouseError: no answer"):
            tried(bench, force="trouble", rows=10)
    else:
        assert tried(bench, force="trouble", rows=10).reasons == reasons
    assert ended == [True]


_STARTS = "import os, subprocess\nsleep = subprocess.Popen(['sleep', '600'], start_new_session={})\n"
_STARTS += "open('started', 'w').write(str(sleep.pid))\n"


@pytest.mark.parametrize(
    ("own_session", "then", "raised"),
    [
        (False, "sleep.wait()", "expected it to end within 5 s, but it is still running"),
        (True, "sleep.wait()", "expected it to end within 5 s, but it is still running"),
        (False, "os.kill(os.getpid(), 9)", "expected an exit code, but it was ended by SIGKILL"),
        (False, "", ""),
    ],
)
def test_what_a_program_started_ends_with_it_and_trouble_of_the_machine_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_session: bool, then: str, raised: str
) -> None:
    wait, started = subprocess.Popen.wait, []

    def until_it_started(child: "subprocess.Popen[str]", timeout: float | None = None) -> int:
        if timeout and not started:
            started.append(os.pidfd_open(int((tmp_path / "started").read_text())))
            if "wait" in then:
                raise subprocess.TimeoutExpired("it", timeout)
        return wait(child)

    os.mkfifo(tmp_path / "started")
    monkeypatch.setattr(subprocess.Popen, "wait", until_it_started)  # No clock decides.
    with pytest.raises(UntriedError, match=raised) if raised else contextlib.nullcontext():
        assert run(["-c", _STARTS.format(own_session) + then], 5, tmp_path) == (0, "it wrote nothing")
    assert select.select(started, [], [], 60)[0] == started
