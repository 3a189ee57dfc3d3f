"""What the rows with a label say of a project, where the source was read whole: whether its split and gate fit them."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from gatehouse.data.splitting.partition import Rows
from gatehouse.data.splitting.refusal.empty_parts import empty_parts
from gatehouse.data.splitting.spec import KFoldSplit, RollingOriginSplit, SplitSpec, TimeSplit
from gatehouse.data.splitting.time_order import Times, divide, in_time, moment
from gatehouse.evaluation.gate import ENOUGH
from gatehouse.evaluation.spec import GatePolicy
from gatehouse.project.project_file import ProjectFile
from gatehouse.runtime.counting import counted
from gatehouse.training.spec import NetworkTraining


@dataclass(frozen=True)
class Divided:
    """How a split divides the rows, as far as their times tell.

    Attributes:
        trained_on: Decision times of the part train, shape (some,), or of train and validation, or of all rows.
        tested: About how many rows are in the part test.
        inside: Numbers of the rows that are in a part, shape (some,); where a hash divides, of all that it divides.
        empty: Why parts have no rows, by part.
    """

    trained_on: Times
    tested: int
    inside: Rows
    empty: dict[str, str]


def divided(split: SplitSpec, rows: pa.Table) -> Divided:
    """Divide rows with a label, as `labelled_rows` gives them."""
    decision, known = (rows[name].to_numpy().astype("datetime64[us]") for name in ("decision_time", "label_time"))
    if isinstance(split, TimeSplit | RollingOriginSplit):
        parts = divide(decision, known, split if isinstance(split, TimeSplit) else split.at(split.origins - 1))
        inside = np.sort(np.concatenate(list(parts.values())))
        return Divided(decision[parts["train"]], len(parts["test"]), inside, empty_parts(decision, known, split))
    if isinstance(split, KFoldSplit) and split.test_from:
        test = decision >= moment(split.test_from)
        before = in_time(decision, known, moment(split.test_from), split.gap)
        return Divided(decision[before], int(test.sum()), np.flatnonzero(test | before), {})
    share = split.test_fraction or 0 if isinstance(split, KFoldSplit) else split.fractions.test
    return Divided(decision, round(share * len(decision)), np.arange(len(decision)), {})


def few_rows(name: str, policy: GatePolicy, tested: int, rows: int) -> Iterator[str]:
    """A sentence where there are fewer test rows than the gate asks for.

    Args:
        name: File of the policy.
        policy: What the gate asks for.
        tested: About how many test rows there are.
        rows: How many rows have a label.
    """
    if tested < policy.least_test_rows:
        refused = policy.terms_of(ENOUGH).severity == "refuse"
        yield (
            f"{name}: least_test_rows: expected at least {counted(policy.least_test_rows, 'test row')}, found about "
            f"{tested:,} of {counted(rows, 'row')} with a label: the gate would "
            f"{'let no model pass' if refused else 'warn of each model'}. Bring more rows, or give the test part more "
            "of them"
        )


def large_batch(file: ProjectFile, rows: int) -> Iterator[str]:
    """A sentence where a batch is larger than the part train, which the stage `train` refuses.

    Args:
        file: The project.
        rows: How many rows are in the part train at most.
    """
    spec, tuning = file.training, file.tuning
    if not isinstance(spec, NetworkTraining) or spec.data.batch_size <= rows:
        return
    if tuning is None or "data.batch_size" not in {*tuning.trial_settings, *(one.name for one in tuning.parameters)}:
        yield (
            f"training.data.batch_size: expected at most the {counted(rows, 'row')} with a label that a model is "
            f"trained on, found {spec.data.batch_size:,}. Lower it, so that an epoch has several steps"
        )
