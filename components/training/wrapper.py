"""Runs torchrun around the training program, and sees to it that no worker outlives the launcher."""

import os
import sys

from gatehouse.process import die_with_parent, follow_owner, owner_env


def main() -> None:
    """Start torchrun with `<processes> <job directory>`; ends with torchrun's exit code."""
    processes, directory = sys.argv[1:3]
    die_with_parent()
    follow_owner()
    os.environ.update(owner_env())
    # The agent's store is shared with the workers otherwise, and a restarted worker then meets the dead attempt's keys.
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from torch.distributed.run import main as torchrun

    program = ["-m", "gatehouse.components.training.program", directory]
    torchrun(["--standalone", f"--nproc-per-node={processes}", "--max-restarts=0", *program])


if __name__ == "__main__":
    main()
