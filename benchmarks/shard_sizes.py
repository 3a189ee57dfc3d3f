"""Prints how many more rows of a batch the fullest process has than the average: the table of docs/training.md."""

import numpy as np

from gatehouse.training.shards import shards_of

ROWS, BATCHES, PROCESSES = 1_000_000, 40, (2, 8, 64)

print("| rows of a batch for each process, on average |", " | ".join(map(str, PROCESSES)), "|")
for share in (256, 1024, 4096):
    cells = []
    for count in PROCESSES:
        order = shards_of(np.random.default_rng(0).permutation(ROWS), count)
        batches = min(BATCHES, ROWS // (share * count))
        shards = order[: batches * share * count].reshape(batches, -1)
        cells.append(np.mean([np.bincount(batch, minlength=count).max() / share for batch in shards]))
    print(f"| {share:,} |", " | ".join(f"{cell:.2f}" for cell in cells), "|")
