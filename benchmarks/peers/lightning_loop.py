"""CPU seconds of one epoch with Lightning, and with the loop written by hand beside it, round by round, as JSON."""

import json
import logging
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import torch
from _training import SPEC, Batch, by_hand, new_model, permuted, read_rows
from lightning.pytorch import LightningModule, Trainer
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.utils.data import IterableDataset


class Permuted(IterableDataset[Batch]):
    """Whole batches, so that the peer pays for its loop and not for its loader."""

    def __init__(self, rows: Batch) -> None:
        self._rows = rows

    def __iter__(self) -> Iterator[Batch]:
        return permuted(self._rows)


class Module(LightningModule):
    """The model with its step."""

    def __init__(self) -> None:
        super().__init__()
        self.model, self._optimizer = new_model()

    def training_step(self, batch: Batch, index: int) -> torch.Tensor:
        numbers, ids, labels = batch
        loss = binary_cross_entropy_with_logits(self.model(numbers, ids), labels)
        self.log("step_loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return self._optimizer


def main() -> None:
    folder, rounds = Path(sys.argv[1]), int(sys.argv[2])
    warnings.simplefilter("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    rows = read_rows(folder / "train")
    times: dict[str, list[float]] = {"peer": [], "hand": []}
    for number in range(rounds + 1):
        taken = {"hand": by_hand(lambda: permuted(rows), folder / f"lightning-{number}")[0], "peer": _peer(rows)}
        for name, seconds in taken.items():
            times[name] += [seconds] if number else []
    print(json.dumps(times))


def _peer(rows: Batch) -> float:
    trainer = Trainer(
        max_epochs=1,
        accelerator="cpu",
        devices=1,
        gradient_clip_val=SPEC.optimizer.clip_norm,
        detect_anomaly=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        logger=False,
    )
    module = Module()
    began = time.process_time()
    trainer.fit(module, torch.utils.data.DataLoader(Permuted(rows), batch_size=None))
    return time.process_time() - began


if __name__ == "__main__":
    main()
