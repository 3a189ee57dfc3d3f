"""Counts of classes: thousands of them take no more memory than the rows."""

import tracemalloc

import numpy as np

from gatehouse.metrics.catalogue.class_counts import ClassCounts, class_metric


def test_thousands_of_classes_are_counted_without_a_square_of_them() -> None:
    @class_metric(title="classes", better="higher", tasks=("multiclass",))
    def classes(counts: ClassCounts) -> float:
        return float(len(counts.seen))

    labels = np.arange(10_000)
    tracemalloc.start()
    assert classes(labels, labels[::-1]) == 10_000
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 20_000_000
