"""A training step of `tabular_mlp`, batch 4096: ours, a loop written by hand, DataLoader, Lightning and Accelerate.

One process, one thread. Clipping, the check of the gradient and three metrics a step are on everywhere. Contestants run
in turn, several rounds, in an order that changes; what is compared is CPU time, round by round, as the median of the
ratios with a 95 % interval (order statistics). Lightning and Accelerate run in an environment of their own, beside the
same loop written by hand, on its permuted gather.
"""

import argparse
import math
import os
import random
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from _peers import run_peer
from _training import ARCHITECTURE, SPEC, Batch, by_hand, permuted, read_rows, write_rows
from torch.utils.data import DataLoader, TensorDataset

from gatehouse.training.spec import OperationSpec
from gatehouse.training.trainer import Trainer

HAND_LEAST, LOADER_LEAST, PEER_LEAST = 0.97, 2.0, 1.0
Seconds = list[float]


class NoCheckpoints:
    """Nothing is saved: the loops compared with save nothing either."""

    due = False

    def load(self, state: object) -> None:
        """Begin at the beginning."""

    def maybe_save(self, state: object, step: int, **reasons: bool) -> None:
        """Go on."""

    def finish(self) -> None:
        """Nothing is being written."""

    def let_go(self) -> None:
        """Nothing is being written."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--peer-rounds", type=int, default=7, help="0 leaves Lightning and Accelerate out")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        write_rows(folder / "train", options.rows)
        write_rows(folder / "validation", 64)
        dist.init_process_group("gloo", init_method=f"file://{folder / 'rendezvous'}", rank=0, world_size=1)
        taken = _race(folder, options.rounds)
        dist.destroy_process_group()
        print(
            f"{options.rows:,} rows, batch {SPEC.data.batch_size}, one epoch a round, {options.rounds} rounds, CPU time"
        )
        _show("hand / ours", taken["hand"], taken["ours"], HAND_LEAST)
        _show("hand / ours, no reading ahead", taken["hand"], taken["inline"])
        _show("DataLoader / ours", taken["loader"], taken["ours"], LOADER_LEAST)
        ratio = _median([hand / own for hand, own in zip(taken["hand"], taken["ours"], strict=True)])
        for peer in ("lightning", "accelerate") if options.peer_rounds else ():
            times = run_peer(f"{peer}_loop", str(folder), str(options.peer_rounds))
            scaled = [peer_cpu * ratio for peer_cpu in times["peer"]]
            _show(f"{peer.removesuffix('_loop')} / ours, both to the hand's", scaled, times["hand"], PEER_LEAST)


def _race(folder: Path, rounds: int) -> dict[str, Seconds]:
    rows = read_rows(folder / "train")
    loader = DataLoader(TensorDataset(*rows), batch_size=SPEC.data.batch_size, shuffle=True)
    files = (folder / f"metrics-{number}" for number in range(10_000))
    contestants: dict[str, Callable[[], float]] = {
        "ours": lambda: _gatehouse(folder, SPEC.operation.prefetch),
        "inline": lambda: _gatehouse(folder, 0),
        "hand": lambda: by_hand(lambda: permuted(rows), next(files))[0],
        "loader": lambda: by_hand(lambda: _tuples(loader), next(files))[0],
    }
    taken: dict[str, Seconds] = {name: [] for name in contestants}
    order = list(contestants)
    for number in range(rounds + 1):
        random.Random(number).shuffle(order)
        for name in order:
            seconds = contestants[name]()
            if number:  # The first round warms up.
                taken[name].append(seconds)
    return taken


def _tuples(loader: "DataLoader[tuple[torch.Tensor, ...]]") -> Iterator[Batch]:
    yield from loader


def _gatehouse(folder: Path, prefetch: int) -> float:
    spec = SPEC.model_copy(update={"operation": OperationSpec(prefetch=prefetch)})
    trainer = Trainer(spec, ARCHITECTURE, folder)
    trainer.checkpointer = NoCheckpoints()  # type: ignore[assignment]  # stands in for one that writes
    began = os.times()
    trainer.train()
    ended = os.times()
    return ended.user + ended.system - began.user - began.system


def _show(what: str, slower: Seconds, own: Seconds, least: float | None = None) -> None:
    ratios = sorted(slow / other for slow, other in zip(slower, own, strict=True))
    low, high = _interval(ratios)
    middle = _median(ratios)
    limit = "" if least is None else f", at least {least}: {'kept' if middle >= least else 'BROKEN'}"
    print(f"{what:<36} {middle:5.3f} [{low:5.3f}, {high:5.3f}]{limit}", flush=True)


def _median(values: Seconds) -> float:
    return float(torch.tensor(values, dtype=torch.float64).median())


def _interval(ratios: Seconds) -> tuple[float, float]:
    """Order statistics between which the median lies with 95 % probability."""
    count = len(ratios)
    out, reach = 0.0, 0
    while reach < count // 2 and out + math.comb(count, reach) / 2**count <= 0.025:
        out += math.comb(count, reach) / 2**count
        reach += 1
    reach = max(reach - 1, 0)
    return ratios[reach], ratios[count - 1 - reach]


if __name__ == "__main__":
    main()
