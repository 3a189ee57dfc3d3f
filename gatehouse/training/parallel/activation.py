"""What is done to a model's blocks one by one: activations computed twice instead of kept, and compilation."""

import functools
from collections.abc import Iterator

from torch import nn
from torch.utils.checkpoint import checkpoint


def checkpoint_activations(model: nn.Module) -> None:
    """Keep only the input of each block, and compute the rest again on the way back; names and weights stay."""
    for block in blocks_of(model):
        block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)


def compile_blocks(model: nn.Module) -> None:
    """Compile each block, in place; equal blocks are compiled once."""
    for block in blocks_of(model):
        block.compile()


def blocks_of(model: nn.Module) -> Iterator[nn.Module]:
    """A model's blocks, or the model where it has none."""
    blocks = getattr(model, "blocks", None)
    if isinstance(blocks, nn.ModuleDict):
        yield from blocks.values()
    elif isinstance(blocks, nn.ModuleList):
        yield from blocks
    else:
        yield model
