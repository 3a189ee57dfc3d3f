"""Rankings: rows in any order, group after group; infinite scores, and groups whose numbers leave gaps."""

import numpy as np
import pytest

from gatehouse.metrics.catalogue.metric import Predictions
from gatehouse.metrics.catalogue.rankings import Rankings
from gatehouse.metrics.mean_reciprocal_rank import mean_reciprocal_rank


def test_rows_stand_group_after_group_from_the_highest_score_down() -> None:
    found = Rankings.of(np.array([0, 1, 2, 3]), np.array([0.1, 0.7, 0.5, 0.7]), np.array([9, 4, 9, 4]))
    assert found.labels.tolist() == [1, 3, 2, 0]
    assert [found.group.tolist(), found.place.tolist(), found.tie.tolist()] == [
        [0, 0, 1, 1],
        [1, 2, 1, 2],
        [0, 0, 1, 2],
    ]
    assert found.above(found.labels).tolist() == [0, 0, 0, 2]
    assert found.expected(found.labels).tolist() == [2, 2, 2, 0]


def test_infinite_scores_have_a_place_and_tie() -> None:
    found = Rankings.of(np.zeros(4), np.array([-np.inf, np.inf, 0.0, np.inf]), np.zeros(4))
    assert found.tie.tolist() == [0, 0, 1, 2]


def test_groups_are_drawn_whole_and_gaps_in_their_numbers_are_no_groups() -> None:
    labels, scores, groups = np.array([1, 0, 0, 1]), np.array([1.0, 0, 1, 0]), np.array([7, 7, 90, 90])
    predictions = Predictions(scores, groups=groups)
    drawn = mean_reciprocal_rank.on_draws(labels, predictions)
    assert [drawn(np.array(times, float)) for times in ([2, 2, 0, 0], [0, 0, 2, 2], [1, 1, 1, 1])] == [1.0, 0.5, 0.75]


def test_a_draw_without_a_group_that_has_something_to_find_gives_0() -> None:
    drawn = mean_reciprocal_rank.on_draws(np.array([0, 1]), Predictions(np.zeros(2), groups=np.array([0, 1])))
    assert [drawn(np.array(times, float)) for times in ([2, 0], [1, 1])] == [0.0, 1.0]
    with pytest.raises(AssertionError, match="reads groups, which its task does not have"):
        mean_reciprocal_rank.measure(np.array([1]), Predictions(np.zeros(1)))
