"""The neural networks that can be trained, and how one is built from its description.

A network takes numbers (rows, width) and category ids (rows, columns), and returns logits: (rows,) for one output, else
(rows, outputs). A network made of `embed`, `blocks` and `head`, called one after another, can be cut into a pipeline
and can checkpoint its activations by block; one with `tensor_plan()` can be tensor-parallel.
"""

import math
from collections.abc import Callable
from importlib import import_module
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, scaled_dot_product_attention

from gatehouse.store.builder_code import BuilderError
from gatehouse.training.model_spec import FtTransformerSpec, LinearSpec, TabularMlpSpec, network_spec


def _squeezed(logits: Tensor) -> Tensor:
    """Logits of shape (rows, outputs), or (rows,) where there is one output."""
    # A copy, not a view: FSDP's backward pass hangs on a returned view.
    return logits.squeeze(1).clone() if logits.shape[1] == 1 else logits


class Linear(nn.Module):
    """Logistic regression, its form for several classes, or least squares; all weights begin at zero."""

    def __init__(self, width: int, cardinalities: list[int], outputs: int, spec: LinearSpec) -> None:
        super().__init__()
        self.numbers = nn.Linear(width, outputs)
        self.tables = nn.ModuleList(nn.Embedding(cardinality, outputs) for cardinality in cardinalities)
        for weights in self.parameters():
            nn.init.zeros_(weights)

    def forward(self, numbers: Tensor, ids: Tensor) -> Tensor:
        """The logits of the rows."""
        logits: Tensor = self.numbers(numbers)
        for index, table in enumerate(self.tables):
            logits = logits + table(ids[:, index])
        return _squeezed(logits)


class Embed(nn.Module):
    """Embeds categories and joins them with the numbers: (rows, width + embedded)."""

    def __init__(self, cardinalities: list[int], sizes: list[int]) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(n, size) for n, size in zip(cardinalities, sizes, strict=True))

    def forward(self, numbers: Tensor, ids: Tensor) -> Tensor:
        """The joined columns of the rows."""
        return torch.cat([numbers, *(table(ids[:, index]) for index, table in enumerate(self.tables))], dim=1)


class Head(nn.Module):
    """One linear layer to the logits."""

    def __init__(self, width: int, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, outputs)

    def forward(self, hidden: Tensor) -> Tensor:
        """The logits of hidden values (rows, width)."""
        return _squeezed(self.linear(hidden))


class _Blocks(nn.Module):
    """A network that calls its children `embed`, `blocks` and `head` one after another."""

    embed: nn.Module
    blocks: nn.ModuleList
    head: nn.Module

    def forward(self, numbers: Tensor, ids: Tensor) -> Tensor:
        hidden = self.embed(numbers, ids)
        for block in self.blocks:
            hidden = block(hidden)
        logits: Tensor = self.head(hidden)
        return logits


class TabularMlp(_Blocks):
    """A multi-layer perceptron over numbers and embedded categories."""

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

    def tensor_plan(self) -> dict[str, str]:
        """Cut layers by columns and rows in turn, so that two of them cost one exchange."""
        plan = {f"blocks.{index}.0": ("columns", "rows")[index % 2] for index in range(len(self.blocks))}
        plan |= {f"blocks.{index}.2": "dropout" for index in range(0, len(self.blocks), 2)}
        return plan | ({"head.linear": "rows"} if len(self.blocks) % 2 else {})


class Tokenizer(nn.Module):
    """One token per feature, after the token from which the head reads: (rows, 1 + features, size)."""

    def __init__(self, width: int, cardinalities: list[int], size: int) -> None:
        super().__init__()
        self.answer = nn.Parameter(_uniform(1, size))
        self.weight = nn.Parameter(_uniform(width, size))
        self.bias = nn.Parameter(_uniform(width, size))
        self.tables = nn.ModuleList(nn.Embedding(cardinality, size) for cardinality in cardinalities)

    def forward(self, numbers: Tensor, ids: Tensor) -> Tensor:
        """The tokens of the rows."""
        answer = self.answer.expand(numbers.shape[0], 1, -1)  # An export takes `len` for a constant.
        numeric = numbers.unsqueeze(2) * self.weight + self.bias
        embedded = [table(ids[:, index]).unsqueeze(1) for index, table in enumerate(self.tables)]
        return torch.cat([answer, numeric, *embedded], dim=1)


def _uniform(*shape: int) -> Tensor:
    bound = 1 / math.sqrt(shape[-1])
    return torch.empty(*shape).uniform_(-bound, bound)


class Attention(nn.Module):
    """Multi-head self-attention; the number of heads follows from the width, which tensor parallelism divides."""

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.per_head = size // heads
        self.query, self.key, self.value = (nn.Linear(size, size) for _ in range(3))
        self.output = nn.Linear(size, size)

    def forward(self, tokens: Tensor) -> Tensor:
        """(rows, tokens, size) to the same shape."""
        projected = (layer(tokens) for layer in (self.query, self.key, self.value))
        query, key, value = (part.unflatten(2, (-1, self.per_head)).transpose(1, 2) for part in projected)
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
        """The logits of tokens (rows, tokens, size)."""
        return _squeezed(self.linear(self.norm(tokens[:, 0]).relu()))


class FtTransformer(_Blocks):
    """FT-Transformer: every feature becomes a token, and a transformer reads the tokens (Gorishniy et al. 2021)."""

    def __init__(self, width: int, cardinalities: list[int], outputs: int, spec: FtTransformerSpec) -> None:
        super().__init__()
        self.embed = Tokenizer(width, cardinalities, spec.token_size)
        self.blocks = nn.ModuleList(Block(spec) for _ in range(spec.blocks))
        self.head = Answer(spec.token_size, outputs)

    def tensor_plan(self) -> dict[str, str]:
        """Divide heads and feed-forward units: cut the layers before them by columns, and those after by rows."""
        cut = {"attention.query": "columns", "attention.key": "columns", "attention.value": "columns"}
        cut |= {"attention.output": "rows", "up": "columns", "down": "rows"}
        return {f"blocks.{index}.{name}": how for index in range(len(self.blocks)) for name, how in cut.items()}


BUILDERS: dict[str, Callable[..., nn.Module]] = {
    "linear": Linear,
    "tabular_mlp": TabularMlp,
    "ft_transformer": FtTransformer,
}


def build_model(architecture: dict[str, Any]) -> nn.Module:
    """Build the module that an architecture of `model.json` describes.

    It has `model` (its settings), `width` (numeric columns), `cardinalities` (ids by categorical column) and `outputs`.
    """
    spec = network_spec(architecture["model"])
    name = spec.architecture
    builder = BUILDERS.get(name)
    if builder is None:
        module, _, attribute = name.partition(":")
        try:
            builder = getattr(import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            raise BuilderError(
                f"Model builder {name} cannot be imported ({error}). Install its package in the training image."
            ) from None
    model = builder(architecture["width"], architecture["cardinalities"], architecture["outputs"], spec)
    if not isinstance(model, nn.Module):
        raise BuilderError(f"Builder {name} returned {type(model).__name__}; expected a torch.nn.Module.")
    return model


def require_logits(model: nn.Module, architecture: dict[str, Any]) -> None:
    """Check the logits of two rows: a loss would broadcast another shape and learn something else.

    The model is on the CPU, and is in evaluation mode afterwards.
    """
    name, outputs = architecture["model"]["architecture"], architecture["outputs"]
    expected = (2,) if outputs == 1 else (2, outputs)
    ids = torch.zeros(2, len(architecture["cardinalities"]), dtype=torch.long)
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            logits = model.eval()(torch.zeros(2, architecture["width"]), ids)
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
        raise BuilderError(f"The model of {name} fails on a batch of two rows: {problem}") from error
    shown = f"{logits.dtype} of shape {tuple(logits.shape)}" if isinstance(logits, Tensor) else type(logits).__name__
    if not isinstance(logits, Tensor) or tuple(logits.shape) != expected or not logits.is_floating_point():
        raise BuilderError(
            f"The model of {name} gives {shown} for two rows; expected floating-point logits of shape {expected}."
        )
