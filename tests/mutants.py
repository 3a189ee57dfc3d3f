"""Plants known faults one at a time in a copy of the tree, and runs the tests that must notice each.

    python -m tests.mutants [WORD …]     # only those whose name holds a word

Each was once possible without a test that failed. Those that survive are printed, and the end is 1. `tests.mutation`
looks for new ones; `tests/test_mutants.py` sees that each of these still applies.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
_FOLDERS = ("components", "docs", "feature_repo", "gatehouse", "images", "locks", "pipelines", "tests")


class Mutant(NamedTuple):
    """A fault: a text that occurs once in a file of `gatehouse`, what stands in its place, and the test that notices.

    A test may be a whole file where that takes seconds.
    """

    name: str
    file: str
    text: str
    fault: str
    test: str


_ON_DISK = "store/test_objects.py::test_a_local_store_has_the_bytes_on_the_disk_before_the_name_and_then_the_name"
# fmt: off
MUTANTS = [Mutant(*fields) for fields in (
    ("the mean over draws counts rows, not draws", "metrics/metric.py",
     "numbers)) / times.sum())", "numbers)) / len(times))",
     "metrics/test_metrics.py::test_a_metric_on_a_draw_is_the_metric_of_the_drawn_rows"),
    ("a comparison has no number of units", "evaluation/evaluating.py",
     "*values, draws, confidence, units.number)", "*values, draws, confidence, None)",
     "evaluation/test_stage.py::test_the_best_champion_so_far_is_compared_too"),
    ("four eyes are not looked at again at promotion", "registry/promotion.py",
     "        require_other_eyes(store, ledger, chosen, verdict, approval.by)\n", "",
     "registry/test_approval.py::test_a_promotion_looks_again_whose_eyes_approved"),
    ("a verdict is bound to no policy", "registry/registration.py",
     '        ("policy", subject.policy, digest_of(manifest.configuration.get("policy"))),\n', "",
     "registry/test_approval.py::test_a_promotion_verifies_the_policy_of_the_verdict"),
    ("bytes are not on the disk before their name", "store/objects/local.py",
     "                os.fsync(stream.fileno())\n", "", _ON_DISK),
    ("a linked file is not on the disk before its name", "store/objects/local.py",
     "            sync(temporary)\n", "", _ON_DISK),
    ("a name is not on the disk", "store/objects/local.py", "        sync(final.parent)\n", "", _ON_DISK),
    ("a body in chunks has no limit", "server/problems.py",
     '"transfer-encoding" in request.headers', "False",
     "server/test_api.py::test_what_is_wrong_is_told_in_the_words_of_the_project"),
    ("a drift of NaN is no drift", "evaluation/gate.py",
     "elif not value <= most:", "elif value > most:", "evaluation/test_origins.py"),
    ("a trial that the end stops is tried again", "tuning/controller.py",
     'provisional = ending == "max_failed_trial_count"', "provisional = True",
     "tuning/test_controller.py::test_a_trial_that_the_end_of_the_search_stops_is_not_tried_again"),
    ("reports are written once", "tuning/controller.py",
     "            self._written = self._clock()\n", "            self._written = math.inf\n",
     "tuning/test_controller.py::test_reports_are_written_again_and_again"),
    ("the champion is no part of the cause of a training", "monitoring/retraining_stage.py",
     ', "champion": champion}\n', "}\n",
     "monitoring/test_retraining.py::test_without_a_server_the_order_waits_and_is_given_once"),
    ("a launcher forgets the failures that an earlier one counted", "launchers/kubernetes/pods.py",
     'self.failures = Counter(progress.get("failures", {}))', "self.failures = Counter()",
     "launchers/kubernetes/test_pods.py"),
    ("a bound at the tolerance does not hold", "evaluation/gate.py",
     "comparison.worst_bound <= limit\n", "comparison.worst_bound < limit\n",
     "evaluation/test_gate_edges.py::test_a_tolerance_below_zero_asks_for_an_improvement"),
    ("bounds of too few units are not marked", "evaluation/gate.py",
     "remark = comparison.few_units or remark", "remark = str(remark)",
     "evaluation/test_gate_edges.py::test_bounds_of_too_few_units_are_marked_and_decide_nothing"),
    ("a check of the data passes unless it failed", "evaluation/gate.py",
     'check.verdict + warned, check.verdict == "pass")', 'check.verdict + warned, check.verdict != "fail")',
     "evaluation/test_gate.py"),
    ("the input of a plug-in is no part of a run's digest", "kfp/submission.py",
     "            dict(self.plugins_input),\n", "",
     "kfp/test_submission.py::test_each_thing_that_a_run_depends_on_is_in_its_digest"),
)]
# fmt: on


def _passes(tree: Path, *tests: str) -> bool:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "-p",
        "no:cacheprovider",
        *(f"tests/{test}" for test in tests),
    ]
    environment = os.environ | {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, cwd=tree, env=environment, capture_output=True, check=False).returncode == 0


def main(words: Sequence[str]) -> int:
    """Plant each fault; 1 if one survives, or if the tests fail without any."""
    chosen, survivors = [mutant for mutant in MUTANTS if not words or any(word in mutant.name for word in words)], 0
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        for name in _FOLDERS:
            shutil.copytree(ROOT / name, tree / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        for path in (*ROOT.glob("*.py"), ROOT / "pyproject.toml"):
            shutil.copy(path, tree)
        if not _passes(tree, *sorted({mutant.test for mutant in chosen})):
            sys.exit("The tests fail without any fault: expected tests that pass.")
        for mutant in chosen:
            path = tree / "gatehouse" / mutant.file
            source = path.read_text()
            path.write_text(source.replace(mutant.text, mutant.fault))
            survives = _passes(tree, mutant.test)
            path.write_text(source)
            print(f"{'SURVIVES' if survives else 'noticed '}  {mutant.file}: {mutant.name}", flush=True)
            survivors += survives
    print(f"{survivors} of {len(chosen)} survive")
    return int(survivors > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
