"""Where no slice was found, a page says no more than is known."""

import pytest

from gatehouse.evaluation.reports.slices import add_found
from gatehouse.metrics.tasks.found import TASKS
from gatehouse.reports.format import Html
from gatehouse.reports.page import Report


@pytest.mark.parametrize(("task", "unsure"), [("ranking", True), ("regression", False)])
def test_of_a_ranking_without_found_slices_the_page_does_not_say_that_they_were_looked_for(
    task: str, unsure: bool
) -> None:
    drawn = Report("Evaluation")
    add_found(drawn, [], Html(""), {}, TASKS[task])
    assert ("None was found, or none was looked for." in drawn.html()) == unsure
    assert ("None was found." in drawn.html()) != unsure
