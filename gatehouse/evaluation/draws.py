"""Numbers of each draw of the bootstrap: a piece is a range of draws, on which one model is measured.

A draw has a generator of its own, so any worker can make it without those before it.
"""

import io
from collections.abc import Sequence

import numpy as np

from gatehouse.errors import WrongImageError
from gatehouse.evaluation.bootstrap import on_draws, shuffled
from gatehouse.evaluation.group_rates import GroupRates
from gatehouse.evaluation.sample import Sample
from gatehouse.metrics.catalogue import metric_named
from gatehouse.metrics.metric import Array, all_on_draws
from gatehouse.pieces.piece import KIND, piece, run_pieces
from gatehouse.store.builder_code import builder_code
from gatehouse.store.stage import StageModel
from gatehouse.store.store import ArtifactStore

ROWS_DRAWN = 1 << 26
"""About how many rows a piece draws, in all of its draws."""
_FILE = "numbers.npy"
_MOST, _FEWEST, _ROWS = 50, 5, 2_000_000


class PartMetrics(StageModel):
    """Metrics of each part of each division of the rows, in turn; without a division all rows are one part."""

    role: str
    metrics: tuple[tuple[str, ...], ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The metrics that are measured."""
        return tuple(sorted({name for part in self.metrics for name in part}))

    def on_draws(self, sample: Sample, draws: range, seed: int) -> Array:
        """The metrics part by part, as `all_on_draws` lists them, shape (draws, numbers)."""
        labels, read = sample.labels, sample.predictions[self.role]
        metrics = [[metric_named(name) for name in part] for part in self.metrics]
        if not sample.divisions:
            return on_draws(all_on_draws(metrics[0], labels, read), sample.units, draws, seed)
        order = np.concatenate([np.argsort(part_of, kind="stable") for part_of in sample.divisions])
        ends = np.cumsum(np.concatenate([np.bincount(part_of) for part_of in sample.divisions]))[:-1]
        parts = zip(metrics, np.split(order, ends), strict=True)
        measured = [all_on_draws(of, labels[rows], read.take(rows)) for of, rows in parts]

        def of_parts(times: Array) -> Array:
            drawn = zip(measured, np.split(times[order], ends), strict=True)
            return np.hstack([measure(of_part) for measure, of_part in drawn])

        return on_draws(of_parts, sample.units, draws, seed)


class ShuffledMetric(StageModel):
    """A metric of predictions that are dealt to other rows at random, in a ranking to other rows of the group.

    There are 50 shuffles, or fewer (at least 5) if these have more than two million rows. Each has its share of the
    `samples` draws.
    """

    role: str
    metric: str
    samples: int

    @property
    def names(self) -> tuple[str, ...]:
        """The metric."""
        return (self.metric,)

    def on_draws(self, sample: Sample, draws: range, seed: int) -> Array:
        """The metric of each draw, and that of all rows in the same shuffle, shape (draws, 2)."""
        labels, read, metric = sample.labels, sample.predictions[self.role], metric_named(self.metric)
        shuffles = min(_MOST, max(_FEWEST, _ROWS // max(len(labels), 1)))
        values = list[Array]()
        for shuffle in range(shuffles):
            first, last = (-(-of * self.samples // shuffles) for of in (shuffle, shuffle + 1))
            own = range(max(first, draws.start), min(last, draws.stop))
            if own:
                measure = all_on_draws([metric], labels, shuffled(read, len(labels), seed, shuffle))
                drawn = on_draws(measure, sample.units, own, seed)[:, 0]
                values.append(np.column_stack([drawn, np.full(len(own), measure(np.ones(len(labels)))[0])]))
        return np.concatenate(values)


Measure = PartMetrics | GroupRates | ShuffledMetric
"""What is measured on each draw."""


class RangeRequest(StageModel):
    """A sample, what is measured on draws from number `first` to below `last`, and the code of a project's metrics."""

    sample: str
    measure: Measure
    first: int
    last: int
    seed: int
    code: str


class RangeResult(StageModel):
    """The artifact with the numbers of each draw."""

    numbers: str


def measured_draws(
    sample: Sample, measures: Sequence[Measure], samples: int, seed: int, store: ArtifactStore | None = None
) -> list[Array]:
    """The numbers of each draw by measure, shape (samples, numbers) each; the same draws for all measures of a seed.

    Few rows, and all without a store, are measured in this process.
    """
    firsts = range(0, samples, max(1, ROWS_DRAWN // max(len(sample.labels), 1)))
    if store is None or len(firsts) <= 1:
        return [measure.on_draws(sample, range(samples), seed) for measure in measures]
    reference = sample.published(store)
    requests = [
        RangeRequest(
            sample=reference,
            measure=measure,
            first=first,
            last=min(first + firsts.step, samples),
            seed=seed,
            code=builder_code(*measure.names),
        )
        for measure in measures
        for first in firsts
    ]
    results = iter(run_pieces(store, [(measure_range, request) for request in requests]))
    return [np.concatenate([np.load(store.path(next(results).numbers, _FILE)) for _ in firsts]) for _ in measures]


@piece
def measure_range(request: RangeRequest, store: ArtifactStore) -> RangeResult:
    """Measure a range of draws. Raises WrongImageError if a metric of the project's own has other code here."""
    measure = request.measure
    if builder_code(*measure.names) != request.code:
        raise WrongImageError(
            f"{', '.join(measure.names)}: expected the packages of the project as the task has them, found other code. "
            "Give the workers the image of the task."
        )
    sample, sink = Sample.read(store, request.sample, measure.role), io.BytesIO()
    np.save(sink, measure.on_draws(sample, range(request.first, request.last), request.seed), allow_pickle=False)
    files = {_FILE: sink.getvalue()}
    return RangeResult(numbers=str(store.publish(KIND, "draws", files, derived_from={"sample": request.sample})))
