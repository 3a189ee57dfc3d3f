"""The networks that can be trained, by name: each a function from sizes and settings to a module.

A module takes numbers (rows, width) and category ids (rows, columns), and gives logits: (rows,) where there is one
output, else (rows, outputs). One that is made of `embed`, `blocks` and `head`, called one after another, can also be
cut into a pipeline and checkpoint its activations by block; one that has `tensor_plan()` can be tensor-parallel.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from torch import nn

from gatehouse.components.artifacts.builder_code import BuilderError
from gatehouse.components.training.models.ft_transformer import FtTransformer
from gatehouse.components.training.models.spec import NetworkSpec, network_spec
from gatehouse.components.training.models.tabular_mlp import TabularMlp

Builder = Callable[[int, list[int], int, NetworkSpec], nn.Module]
BUILDERS: dict[str, Callable[..., nn.Module]] = {"tabular_mlp": TabularMlp, "ft_transformer": FtTransformer}


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
