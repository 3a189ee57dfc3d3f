"""What an edit of the sources runs again: nothing where it decides nothing, else the stages that use it alone."""

import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import gatehouse
from gatehouse.kfp.local_run import LocalRun
from gatehouse.registry.ledger import Ledger
from gatehouse.store import code
from gatehouse.store.code import forget_sources
from gatehouse.store.run import events
from gatehouse.store.stage import declared_stages
from gatehouse.store.store import ArtifactStore
from tests.small_example import MODEL, WINDOW, write_project

pytestmark = pytest.mark.timeout(900)

Edit = tuple[str, str, str]
HARMLESS: dict[str, list[Edit]] = {
    "a colour of a report": [("gatehouse/reports/style.py", '"#17202b"', '"#000000"')],
    "a log line": [
        ("gatehouse/launchers/local.py", 'logger.info("Preempted:', 'logger.info("Stopped:'),
        ("gatehouse/training/trainer.py", 'logger.info("epoch', 'logger.info("Epoch'),
        ("gatehouse/training/trainer.py", "{value:.5f}", "{value:.4f}"),
    ],
    "how long is waited": [
        ("gatehouse/training/stage.py", "minutes=240", "minutes=241"),
        ("components/training/waits.py", "LAST_SECONDS = 2.0", "LAST_SECONDS = 3.0"),
        ("gatehouse/training/checkpointing/checkpointer.py", "_PEERS_SECONDS = 300.0", "_PEERS_SECONDS = 200.0"),
        ("gatehouse/launchers/job_directory.py", "_LOOK_SECONDS = 0.1", "_LOOK_SECONDS = 0.2"),
        ("gatehouse/launchers/timeouts.py", "HANG_SECONDS = 900.0", "HANG_SECONDS = 800.0"),
        ("gatehouse/evaluation/footprint.py", "_SECONDS = 300", "_SECONDS = 200"),
        ("gatehouse/tuning/access/lease.py", "_LOOK_SECONDS = 0.5", "_LOOK_SECONDS = 0.4"),
        ("gatehouse/tuning/waits.py", "LOOK_SECONDS = 1.0", "LOOK_SECONDS = 0.9"),
    ],
    "how often is tried again": [
        ("gatehouse/store/objects/retry.py", "ATTEMPTS = 6", "ATTEMPTS = 7"),
        ("gatehouse/tuning/waits.py", "RETRIES = 2", "RETRIES = 3"),
    ],
    "the wording of an error": [
        ("gatehouse/data/splitting/divide.py", "To split by other", "To split by more"),
        ("gatehouse/data/splitting/refusal/empty_shares.py", "Bring more rows", "Bring many more rows"),
        ("gatehouse/features/computing/labels.py", "Give no label to a row", "Give no label to any row"),
        ("gatehouse/training/transformation/fitting.py", "found none of that name", "found no such"),
        ("gatehouse/tuning/refusal.py", "measured of no trial", "measured in no trial"),
        ("errors.py", "exit_code = 4", "exit_code = 5"),
    ],
    "the version of a release": [("__init__.py", '__version__ = "0.1.0"', '__version__ = "0.2.0"')],
    "how a metric is shown": [
        ("gatehouse/metrics/log_loss.py", 'title="log loss"', 'title="logarithmic loss", form=".3f"'),
        ("gatehouse/metrics/calibration_error.py", "it is that of these rows", "it is the one of these rows"),
    ],
    "a field of the policy": [
        (
            "gatehouse/evaluation/spec.py",
            "    four_eyes: bool = Field(",
            '    wait: timedelta = Field(timedelta(0), description="How long.")\n    four_eyes: bool = Field(',
        ),
        ("gatehouse/evaluation/spec.py", "from pydantic", "from datetime import timedelta\nfrom pydantic"),
        ("gatehouse/evaluation/spec.py", "Who makes a passing model", "Who declares a passing model"),
    ],
    "the metrics spool": [("gatehouse/tracking/spool.py", "SEGMENTS = 64", "SEGMENTS = 65")],
    "the S3 client": [("gatehouse/store/objects/s3.py", "\nimport ", "\nimport antigravity\nimport ")],
}
LEARNING = ("gatehouse/training/optimizer.py", "= rate, weight_decay", "= rate * 1e-4, weight_decay")
SAME_JOIN = ("gatehouse/features/point_in_time/asof_join.py", "stop - start", "-start + stop")
SAME_SPLIT = ("gatehouse/data/splitting/time_order.py", "chosen &= decision >= start", "chosen &= ~(decision < start)")
JUDGING = {"evaluate", "probe", "monitor"}
MEASURING = JUDGING | {"tune", "train"}
DECIDING = {
    "the optimizer": (LEARNING, {"tune", "train"}),
    "the join": (
        SAME_JOIN,
        {"retrieve_training_set", "retrieve_decisions", "check_leakage"},
    ),
    "the split": (SAME_SPLIT, {"split"}),
    "a default of what is also built in code, by its version": (
        (
            "gatehouse/training/transformation/spec.py",
            "class CategoricalSpec(Spec):\n",
            "class CategoricalSpec(Spec):\n    format_version: ClassVar[int] = 2\n",
        ),
        {"fit_transformation"},
    ),
    "a default of the gate": (
        ("gatehouse/metrics/tasks/judging.py", 'leakage_alarm={"roc_auc": 0.95}', 'leakage_alarm={"roc_auc": 0.96}'),
        JUDGING,
    ),
    "a metric": (("gatehouse/metrics/log_loss.py", "1 - _TINY", "-_TINY + 1"), MEASURING | {"calibrate"}),
    "a metric that leakage is found with": (
        ("gatehouse/metrics/roc_auc.py", "hits * below", "below * hits"),
        MEASURING | {"check_leakage", "split"},
    ),
    "how a metric is measured": (
        (
            "gatehouse/metrics/catalogue/declared.py",
            'np.einsum("i,i", times, numbers)',
            "np.sum(times * numbers)",
        ),
        MEASURING | {"check_leakage", "calibrate", "split"},
    ),
    "which metrics are measured": (
        (
            "gatehouse/metrics/catalogue/found.py",
            "task in metric_named(name).tasks",
            "task in {*metric_named(name).tasks}",
        ),
        JUDGING,
    ),
    "a metric that only evaluations measure": (
        ("gatehouse/metrics/f1.py", "2 * counts.right", "counts.right * 2"),
        JUDGING,
    ),
}


class Sources:
    """A copy of the sources, to be edited; code digests are taken of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # Bytecode of a file that is edited within a second, to the same length, would be taken for that of the edit.
        skipped = shutil.ignore_patterns("__pycache__", "compiled")
        shutil.copytree(Path(gatehouse.__file__).parent, folder / "gatehouse", ignore=skipped)

    def edit(self, edit: Edit) -> None:
        """Replace one text in one file."""
        name, old, new = edit
        path = self.folder / "gatehouse" / name
        text = path.read_text()
        assert old in text, f"{name} does not hold {old!r}"
        path.write_text(text.replace(old, new, 1))
        forget_sources()

    def comment_everything(self) -> None:
        """Add a comment to every Python file."""
        for path in (self.folder / "gatehouse").rglob("*.py"):
            path.write_text(f"# A comment.\n{path.read_text()}")
        forget_sources()

    def digests(self) -> dict[str, str]:
        """Code digest of every stage whose result the memo keeps."""
        return {name: stage.code() for name, stage in declared_stages().items() if stage.declared.effects.memo}


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sources]:
    copied = Sources(tmp_path / "sources")
    monkeypatch.setattr(code, "_ROOT", copied.folder / "gatehouse")
    forget_sources()
    yield copied
    forget_sources()


def test_a_comment_anywhere_changes_no_code(sources: Sources) -> None:
    before = sources.digests()
    sources.comment_everything()
    assert sources.digests() == before


@pytest.mark.parametrize("edits", HARMLESS.values(), ids=HARMLESS)
def test_an_edit_of_what_carries_or_says_changes_no_code(sources: Sources, edits: list[Edit]) -> None:
    before = sources.digests()
    for edit in edits:
        sources.edit(edit)
    after = sources.digests()
    assert {name for name in before if after[name] != before[name]} == set(), edits


@pytest.mark.parametrize(("edit", "stages"), DECIDING.values(), ids=DECIDING)
def test_an_edit_of_arithmetic_changes_the_code_of_the_stages_that_use_it(
    sources: Sources, edit: Edit, stages: set[str]
) -> None:
    before = sources.digests()
    sources.edit(edit)
    after = sources.digests()
    assert {name for name in before if after[name] != before[name]} == stages


def test_a_run_after_edits_runs_what_uses_them_and_goes_on_only_where_the_output_differs(
    first: tuple[ArtifactStore, LocalRun], copy: ArtifactStore, tmp_path: Path, raw: Path, sources: Sources
) -> None:
    """Everything harmless at once; a split that gives the same rows; an optimizer that makes a worse model.

    What reads the split alone is found in the memo. The run restarts at tuning, and the worse model is refused:
    the champion is the model of the first run.
    """
    sources.comment_everything()
    for edit in (*itertools.chain.from_iterable(HARMLESS.values()), SAME_SPLIT, LEARNING):
        sources.edit(edit)
    project = write_project(tmp_path / "project")
    before = first[1]
    known = set(copy.objects.folders("runs"))
    command = [sys.executable, "-m", "gatehouse.cli.main", "run", str(project), "--store", copy.address]
    ended = subprocess.run(
        [*command, "--source", str(raw), "--window", WINDOW],
        env=os.environ | {"PYTHONPATH": str(sources.folder)},
        cwd=sources.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    (run,) = set(copy.objects.folders("runs")) - known
    ends = {event.stage: event for _, event in events(copy, run) if event.event in ("hit", "finished")}
    stages = declared_stages()
    finished = {name for name, event in ends.items() if event.event == "finished" and ":" not in name}
    ran = {name for name in finished if stages[name].declared.effects.memo}
    assert ran == {"split", "tune", "train", "evaluate"}
    results = {name: event.body["result"] for name, event in ends.items()}
    for name in set(ends) - {"snapshot", "tune", "train", "resolve", "evaluate", "register"}:
        if ":" not in name:
            assert results[name] == before.result(name), name
    champion = before.result("train")["model"]
    assert results["resolve"]["champion"] == champion != results["train"]["model"]
    assert results["register"]["decision"] == "refused"
    assert any("champion log_loss" in reason for reason in results["evaluate"]["reasons"])
    assert Ledger(copy, MODEL).state().champion == 1
