"""FT-Transformer: every feature becomes a token, and a transformer reads the tokens (Gorishniy et al. 2021)."""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, scaled_dot_product_attention

from gatehouse.training.models.spec import FtTransformerSpec


class Tokenizer(nn.Module):
    """One token a feature, and one to read the answer from: (rows, 1 + features, size)."""

    def __init__(self, width: int, cardinalities: list[int], size: int) -> None:
        super().__init__()
        self.answer = nn.Parameter(_uniform(1, size))
        self.weight = nn.Parameter(_uniform(width, size))
        self.bias = nn.Parameter(_uniform(width, size))
        self.tables = nn.ModuleList(nn.Embedding(cardinality, size) for cardinality in cardinalities)

    def forward(self, numbers: Tensor, ids: Tensor) -> Tensor:
        """Tokens of numbers (rows, width) and category ids (rows, columns); the answer's token comes first."""
        answer = self.answer.expand(numbers.shape[0], 1, -1)  # An export takes `len` for a constant.
        numeric = numbers.unsqueeze(2) * self.weight + self.bias
        embedded = [table(ids[:, index]).unsqueeze(1) for index, table in enumerate(self.tables)]
        return torch.cat([answer, numeric, *embedded], dim=1)


class Attention(nn.Module):
    """Multi-head self-attention; the number of heads follows from the width, which tensor parallelism divides."""

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.per_head = size // heads
        self.query, self.key, self.value = (nn.Linear(size, size) for _ in range(3))
        self.output = nn.Linear(size, size)

    def forward(self, tokens: Tensor) -> Tensor:
        """(rows, tokens, size) to the same shape."""
        made = (part(tokens) for part in (self.query, self.key, self.value))
        query, key, value = (one.unflatten(2, (-1, self.per_head)).transpose(1, 2) for one in made)
        mixed = scaled_dot_product_attention(query, key, value)
        result: Tensor = self.output(mixed.transpose(1, 2).flatten(2))
        return result


class Block(nn.Module):
    """Attention and feed-forward layers, each normalised before and added to its input."""

    def __init__(self, spec: FtTransformerSpec) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(spec.token_size)
        self.attention = Attention(spec.token_size, spec.heads)
        self.feed_norm = nn.LayerNorm(spec.token_size)
        self.up = nn.Linear(spec.token_size, spec.feed_forward)
        self.down = nn.Linear(spec.feed_forward, spec.token_size)
        self.dropout = nn.Dropout(spec.dropout)

    def forward(self, tokens: Tensor) -> Tensor:
        """(rows, tokens, size) to the same shape."""
        tokens = tokens + self.dropout(self.attention(self.attention_norm(tokens)))
        fed: Tensor = self.dropout(self.down(gelu(self.up(self.feed_norm(tokens)))))
        return tokens + fed


class Answer(nn.Module):
    """Reads the logits from the first token."""

    def __init__(self, size: int, outputs: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(size)
        self.linear = nn.Linear(size, outputs)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits of shape (rows,) or (rows, outputs)."""
        logits: Tensor = self.linear(self.norm(tokens[:, 0]).relu())
        # A copy, not a view: FSDP hangs the way back on what it returns.
        return logits.squeeze(1).clone() if logits.shape[1] == 1 else logits


class FtTransformer(nn.Module):
    """Feature tokenizer, transformer blocks, and a head on the answer's token."""

    def __init__(self, width: int, cardinalities: list[int], outputs: int, spec: FtTransformerSpec) -> None:
        super().__init__()
        self.embed = Tokenizer(width, cardinalities, spec.token_size)
        self.blocks = nn.ModuleList(Block(spec) for _ in range(spec.blocks))
        self.head = Answer(spec.token_size, outputs)

    def forward(self, numbers: Tensor, ids: Tensor) -> Tensor:
        """Logits of shape (rows,), or (rows, outputs) where there are several."""
        tokens = self.embed(numbers, ids)
        for block in self.blocks:
            tokens = block(tokens)
        logits: Tensor = self.head(tokens)
        return logits

    def tensor_plan(self) -> dict[str, str]:
        """Heads and feed-forward units are divided: what enters them by columns, what leaves them by rows."""
        cut = {"attention.query": "columns", "attention.key": "columns", "attention.value": "columns"}
        cut |= {"attention.output": "rows", "up": "columns", "down": "rows"}
        return {f"blocks.{index}.{name}": how for index in range(len(self.blocks)) for name, how in cut.items()}


def _uniform(*shape: int) -> Tensor:
    bound = 1 / math.sqrt(shape[-1])
    return torch.empty(*shape).uniform_(-bound, bound)
