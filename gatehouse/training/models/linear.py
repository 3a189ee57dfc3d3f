"""A linear model over numbers and categories: logistic regression, its form for several classes, or least squares."""

from torch import Tensor, nn

from gatehouse.training.models.spec import LinearSpec


class Linear(nn.Module):
    """One weight a number and one a category for each output; it begins at zero, as there is one best place to end."""

    def __init__(self, width: int, cardinalities: list[int], outputs: int, spec: LinearSpec) -> None:
        super().__init__()
        self.numbers = nn.Linear(width, outputs)
        self.tables = nn.ModuleList(nn.Embedding(cardinality, outputs) for cardinality in cardinalities)
        for weights in self.parameters():
            nn.init.zeros_(weights)

    def forward(self, numbers: Tensor, ids: Tensor) -> Tensor:
        """Logits of shape (rows,), or (rows, outputs) where there are several."""
        logits: Tensor = self.numbers(numbers)
        for index, table in enumerate(self.tables):
            logits = logits + table(ids[:, index])
        # A copy, not a view: FSDP hangs the way back on what it returns.
        return logits.squeeze(1).clone() if logits.shape[1] == 1 else logits
