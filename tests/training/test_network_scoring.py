"""Scoring in blocks: what it leaves behind in the process."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import torch
from torch import Tensor

from gatehouse.training.network_scoring import score_rows


def test_threads_that_score_at_once_leave_the_number_of_torchs_threads_as_it_was() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    began, left = Barrier(2, timeout=60), Barrier(2, timeout=60)
    threads: list[int] = []

    def work(last: bool) -> int:
        def score(numbers: Tensor, ids: Tensor) -> Tensor:
            threads.append(torch.get_num_threads())
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
    assert threads == [1, 1] and torch.get_num_threads() == 2
    torch.set_num_threads(before)
