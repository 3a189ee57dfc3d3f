"""Area under the ROC curve."""

import numpy as np

from gatehouse.metrics.catalogue.declared import ranked_metric
from gatehouse.metrics.catalogue.metric import Array


@ranked_metric(
    title="ROC AUC",
    better="higher",
    tasks=("binary", "multiclass"),
    chance={"binary": 0.5, "multiclass": 0.5},
    aliases=("auc", "auroc", "roc"),
)
def roc_auc(hits: Array, rows: Array) -> float:
    """The chance that a positive row scores above a negative one, ties counting half; shape (rows,) each.

    This is the Mann-Whitney U statistic over the number of pairs (Hanley and McNeil 1982). Of several classes it is the
    mean area of each against the rest (Provost and Domingos 2000).

    Returns:
        A number in [0, 1]; 0.5 where only one class is there.
    """
    misses = rows - hits
    pairs = int(hits.sum()) * int(misses.sum())
    below = np.cumsum(misses[::-1])[::-1] - misses / 2
    return float(np.sum(hits * below) / pairs) if pairs else 0.5
