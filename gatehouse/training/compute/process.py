"""Settings of the process that decide bits: threads, determinism, and the device."""

import os

import torch

from gatehouse.errors import ConfigurationError
from gatehouse.training.compute.spec import ComputeSpec


def prepare_process(spec: ComputeSpec, threads: int) -> None:
    """Make the settings of the process that decide bits: threads, determinism, and the device of this rank.

    Args:
        spec: How the arithmetic happens.
        threads: Of this process.

    Raises:
        ConfigurationError: if it happens on GPUs, and there is none for this rank.
    """
    torch.set_num_threads(threads)
    if spec.deterministic:
        # cuBLAS adds in a fixed order only with workspaces of its own, which it reads from here when it starts.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    # `use_deterministic_algorithms` does the same and imports torch's compiler, two seconds, to tell it as well.
    torch.set_deterministic_debug_mode("error" if spec.deterministic else "default")
    if spec.device == "cuda":
        place, found = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
        if place >= found:
            raise ConfigurationError(
                f"training.compute.device is cuda: expected a GPU for each process of this machine, found {found} for "
                f"process {place + 1}. Set it to cpu, start fewer processes, or ask for more in launch.resources."
            )
        torch.cuda.set_device(place)
        torch.backends.cudnn.benchmark = not spec.deterministic
