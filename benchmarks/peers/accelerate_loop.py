"""CPU seconds of one epoch with Accelerate, and with the loop written by hand beside it, round by round, as JSON."""

import json
import sys
import time
from pathlib import Path

import torch
from _training import SPEC, Batch, by_hand, new_model, permuted, read_rows
from accelerate import Accelerator
from torch.nn.functional import binary_cross_entropy_with_logits


def main() -> None:
    folder, rounds = Path(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    rows = read_rows(folder / "train")
    times: dict[str, list[float]] = {"peer": [], "hand": []}
    for number in range(rounds + 1):
        taken = {"hand": by_hand(lambda: permuted(rows), folder / f"accelerate-{number}")[0], "peer": _peer(rows)}
        for name, seconds in taken.items():
            times[name] += [seconds] if number else []
    print(json.dumps(times))


def _peer(rows: Batch) -> float:
    accelerator = Accelerator(cpu=True)
    # Its prepare() takes no loader of whole batches, so the batches are ours.
    model, optimizer = accelerator.prepare(*new_model())
    began = time.process_time()
    for numbers, ids, labels in permuted(rows):
        optimizer.zero_grad(set_to_none=True)
        loss = binary_cross_entropy_with_logits(model(numbers, ids), labels)
        accelerator.backward(loss)
        norm = accelerator.clip_grad_norm_(model.parameters(), SPEC.optimizer.clip_norm)
        if not torch.isfinite(norm):
            raise ArithmeticError
        optimizer.step()
        float(loss.detach())
    return time.process_time() - began


if __name__ == "__main__":
    main()
