"""The random number generators of one rank: Python's, NumPy's, torch's, and its own GPU's.

Other GPUs are other ranks': their number, and which of them is this rank's, may change from attempt to attempt.
"""

import random
from typing import Any

import numpy as np
import torch
from torch import Tensor


def random_state(device: torch.device) -> dict[str, Any]:
    """The state of all generators, that of `device` among them: plain values, and flat tensors of bytes or words."""
    legacy = np.random.get_state(legacy=False)
    assert isinstance(legacy, dict)
    return {
        "python": random.getstate(),
        "numpy": {
            "key": torch.from_numpy(np.asarray(legacy["state"]["key"]).astype(np.int64)),
            "pos": int(legacy["state"]["pos"]),
            "has_gauss": int(legacy["has_gauss"]),
            "gauss": float(legacy["gauss"]),
        },
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
    }


def set_random_state(state: dict[str, Any], device: torch.device) -> None:
    """Continue where `random_state` was taken, on another GPU or on the same one."""
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    numpy = state["numpy"]
    np.random.set_state(
        {
            "bit_generator": "MT19937",
            "state": {"key": numpy["key"].numpy().astype(np.uint32), "pos": numpy["pos"]},
            "has_gauss": numpy["has_gauss"],
            "gauss": numpy["gauss"],
        }
    )
    torch.set_rng_state(state["torch"])
    if device.type == "cuda" and state["cuda"] is not None:
        torch.cuda.set_rng_state(state["cuda"], device)


def drawn(device: torch.device) -> list[Tensor]:
    """The state of torch's generators alone, which decides a step's dropout; takes microseconds.

    One byte tensor for the CPU, and one for the GPU if `device` is one; each has the shape (bytes of the state,).
    """
    return [torch.get_rng_state(), *([torch.cuda.get_rng_state(device)] if device.type == "cuda" else [])]


def draw_again(states: list[Tensor], device: torch.device) -> None:
    """Reset torch's generators so that the same numbers are drawn again.

    Args:
        states: What `drawn` returned: a byte tensor for each generator, shape (bytes of the state,).
        device: The device of the second state.
    """
    torch.set_rng_state(states[0])
    for state in states[1:]:
        torch.cuda.set_rng_state(state, device)


def seed_all(seed: int) -> None:
    """Seed all generators, so that also a builder or a layer of one's own that draws from them is repeated."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)
