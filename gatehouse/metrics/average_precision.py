"""Average precision, the area under the precision-recall curve."""

import numpy as np

from gatehouse.metrics.catalogue.declared import ranked_metric
from gatehouse.metrics.catalogue.metric import Array


@ranked_metric(title="PR AUC", better="higher", tasks=("binary", "multiclass"), aliases=("ap", "pr_auc", "prauc"))
def average_precision(hits: Array, rows: Array) -> float:
    """The area as a sum of steps: sum over thresholds of (R_n - R_{n-1}) P_n, of labels and scores, shape (rows,).

    Of several classes it is the mean area of each against the rest.

    Returns:
        A number in [0, 1]; 0.0 where there is no positive row.
    """
    precision = np.cumsum(hits) / np.maximum(np.cumsum(rows), 1)
    return float(np.sum(hits * precision) / max(int(hits.sum()), 1))
