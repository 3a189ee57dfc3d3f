"""A multi-layer perceptron over numbers and embedded categories."""

from itertools import pairwise

import torch
from torch import Tensor, nn

from gatehouse.training.models.spec import TabularMlpSpec


class Embed(nn.Module):
    """Embeds categories and joins them with the numbers."""

    def __init__(self, cardinalities: list[int], sizes: list[int]) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(n, size) for n, size in zip(cardinalities, sizes, strict=True))

    def forward(self, numbers: Tensor, ids: Tensor) -> Tensor:
        """(rows, width + embedded) for numbers (rows, width) and category ids (rows, columns)."""
        return torch.cat([numbers, *(table(ids[:, index]) for index, table in enumerate(self.tables))], dim=1)


class TabularMlp(nn.Module):
    """Embedded categories and numbers through hidden layers to the logits of a row."""

    def __init__(self, width: int, cardinalities: list[int], outputs: int, spec: TabularMlpSpec) -> None:
        super().__init__()
        sizes = [min(spec.embedding_size, (cardinality + 1) // 2) for cardinality in cardinalities]
        self.embed = Embed(cardinalities, sizes)
        widths = [width + sum(sizes), *spec.hidden]
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(before, after), nn.SiLU(), nn.Dropout(spec.dropout))
            for before, after in pairwise(widths)
        )
        self.head = Head(widths[-1], outputs)

    def forward(self, numbers: Tensor, ids: Tensor) -> Tensor:
        """Logits of shape (rows,), or (rows, outputs) where there are several."""
        hidden = self.embed(numbers, ids)
        for block in self.blocks:
            hidden = block(hidden)
        logits: Tensor = self.head(hidden)
        return logits

    def tensor_plan(self) -> dict[str, str]:
        """Layers are cut by columns and rows in turn, so that two of them cost one exchange."""
        plan = {f"blocks.{index}.0": ("columns", "rows")[index % 2] for index in range(len(self.blocks))}
        plan |= {f"blocks.{index}.2": "dropout" for index in range(0, len(self.blocks), 2)}
        return plan | ({"head.linear": "rows"} if len(self.blocks) % 2 else {})


class Head(nn.Module):
    """One linear layer to the logits; a single output has no dimension of its own."""

    def __init__(self, width: int, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, outputs)

    def forward(self, hidden: Tensor) -> Tensor:
        """Logits of shape (rows,) or (rows, outputs) for (rows, width)."""
        logits: Tensor = self.linear(hidden)
        # A copy, not a view: FSDP hangs the way back on what it returns.
        return logits.squeeze(1).clone() if logits.shape[1] == 1 else logits
