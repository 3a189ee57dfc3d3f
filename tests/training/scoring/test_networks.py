"""Scoring in blocks: what it leaves behind in the process."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
import torch
from torch import Tensor

from gatehouse.training.scoring.networks import score_rows


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_threads_that_score_at_once_leave_the_number_of_torchs_threads_as_it_was(two_threads: None) -> None:
    began, left = Barrier(2, timeout=60), Barrier(2, timeout=60)
    found: list[int] = []

    def work(last: bool) -> int:
        def score(numbers: Tensor, ids: Tensor) -> Tensor:
            found.append(torch.get_num_threads())
            began.wait()
            if last:
                left.wait()
            return numbers

        score_rows(score, torch.zeros(64, 1), torch.zeros(64, 1))
        if not last:
            left.wait()
        return torch.get_num_threads()

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(work, (False, True))) == [2, 2]
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(torch.get_num_threads).result() == 2
    assert found == [1, 1] and torch.get_num_threads() == 2
