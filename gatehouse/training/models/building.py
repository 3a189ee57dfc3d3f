"""The networks that can be trained, by name: each a function from sizes and settings to a module.

A module takes numbers (rows, width) and category ids (rows, columns), and gives logits: (rows,) where there is one
output, else (rows, outputs). One that is made of `embed`, `blocks` and `head`, called one after another, can also be
cut into a pipeline and checkpoint its activations by block; one that has `tensor_plan()` can be tensor-parallel.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from gatehouse.store.builder_code import BuilderError
from gatehouse.training.models.ft_transformer import FtTransformer
from gatehouse.training.models.linear import Linear
from gatehouse.training.models.spec import NetworkSpec, network_spec
from gatehouse.training.models.tabular_mlp import TabularMlp

Builder = Callable[[int, list[int], int, NetworkSpec], nn.Module]
BUILDERS: dict[str, Callable[..., nn.Module]] = {
    "linear": Linear,
    "tabular_mlp": TabularMlp,
    "ft_transformer": FtTransformer,
}


def build_model(architecture: dict[str, Any]) -> nn.Module:
    """Build the module that an architecture of `model.json` describes.

    Args:
        architecture: `model` (its settings), `width` (numeric columns), `cardinalities` (ids of each categorical
            column) and `outputs`.

    Raises:
        BuilderError: if its builder cannot be imported or builds something else.
    """
    spec = network_spec(architecture["model"])
    builder: Builder = BUILDERS.get(spec.architecture) or _imported(spec.architecture)
    model = builder(architecture["width"], architecture["cardinalities"], architecture["outputs"], spec)
    if not isinstance(model, nn.Module):
        raise BuilderError(f"Builder {spec.architecture} returned {type(model).__name__}; expected a torch.nn.Module.")
    return model


def require_logits(model: nn.Module, architecture: dict[str, Any]) -> None:
    """Ask a module for the logits of two rows: of another shape, a loss would be broadcast and learn something else.

    Args:
        model: On the CPU, as it was built; it is in evaluation mode afterwards.
        architecture: What it was built from.

    Raises:
        BuilderError: if it fails on the rows, or gives anything but floating-point numbers of the right shape.
    """
    name, outputs = architecture["model"]["architecture"], architecture["outputs"]
    expected = (2,) if outputs == 1 else (2, outputs)
    ids = torch.zeros(2, len(architecture["cardinalities"]), dtype=torch.long)
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            logits = model.eval()(torch.zeros(2, architecture["width"]), ids)
    except Exception as error:
        raise BuilderError(
            f"The model of {name} fails on a batch of two rows: {type(error).__name__}: {error}"
        ) from error
    found = f"{logits.dtype} of shape {tuple(logits.shape)}" if isinstance(logits, Tensor) else type(logits).__name__
    if not isinstance(logits, Tensor) or tuple(logits.shape) != expected or not logits.is_floating_point():
        raise BuilderError(
            f"The model of {name} gives {found} for two rows; expected floating-point logits of shape {expected}"
            f"{', for instance by squeeze(1)' if outputs == 1 else ''}."
        )


def _imported(name: str) -> Builder:
    module, _, attribute = name.partition(":")
    try:
        builder: Builder = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise BuilderError(
            f"Model builder {name} cannot be imported ({error}). Put its package on the path of the training image, "
            "and name it as package.module:builder."
        ) from None
    return builder
