"""Whether less is better of metrics and of the means of losses."""

from gatehouse.metrics.tasks.direction import is_minimized


def test_metrics_and_losses_have_a_direction() -> None:
    assert [is_minimized(name) for name in ("log_loss", "huber", "pairwise", "mse", "brier")] == [True] * 5
    assert [is_minimized(name) for name in ("roc_auc", "ndcg", "r2", "accuracy")] == [False] * 4
