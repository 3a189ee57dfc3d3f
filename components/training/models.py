"""The models that can be trained, by name: each a function from sizes to a module."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from gatehouse.components.training.spec import TrainSpec


class TabularMlp(nn.Module):
    """Embeds categories, joins them with the numbers, and ends in one logit a row."""

    def __init__(self, width: int, cardinalities: list[int], spec: TrainSpec) -> None:
        super().__init__()
        sizes = [min(spec.embedding_size, (cardinality + 1) // 2) for cardinality in cardinalities]
        self.embeddings = nn.ModuleList(nn.Embedding(n, size) for n, size in zip(cardinalities, sizes, strict=True))
        layers: list[nn.Module] = []
        before = width + sum(sizes)
        for hidden in spec.hidden:
            layers += [nn.Linear(before, hidden), nn.SiLU(), nn.Dropout(spec.dropout)]
            before = hidden
        self.layers = nn.Sequential(*layers, nn.Linear(before, 1))

    def forward(self, numbers: Tensor, ids: Tensor) -> Tensor:
        """Logits of shape (rows,) for numbers (rows, width) and category ids (rows, columns)."""
        embedded = [embedding(ids[:, index]) for index, embedding in enumerate(self.embeddings)]
        logits: Tensor = self.layers(torch.cat([numbers, *embedded], dim=1))
        return logits.squeeze(1)


BUILDERS: dict[str, Callable[[int, list[int], TrainSpec], nn.Module]] = {"tabular_mlp": TabularMlp}


def build_model(architecture: dict[str, Any]) -> nn.Module:
    """Build the module that an architecture of `model.json` describes (`spec`, `width`, `cardinalities`).

    Raises:
        KeyError: if no builder has the architecture's name.
    """
    spec = TrainSpec.model_validate(architecture["spec"])
    return BUILDERS[spec.architecture](architecture["width"], architecture["cardinalities"], spec)
