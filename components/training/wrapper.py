"""Runs torchrun around the training program, and sees to it that no worker outlives the launcher."""

import os
import sys

from gatehouse.process import die_with_parent, follow_owner, owner_env

MAX_RESTARTS = 2


def main() -> None:
    """Start torchrun with `<processes> <job directory>`; ends with 0, or with 1 and a line about the first failure."""
    processes, directory = sys.argv[1:3]
    die_with_parent()
    follow_owner()
    os.environ.update(owner_env())
    # The agent's store is shared with the workers otherwise, and a restarted worker then meets the dead attempt's keys.
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    # DDP would warn, on every rank, of a setting that keeps resumed runs bit-identical (`parallel/ddp.py`).
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import main as torchrun

    where = [
        "--standalone",
        "--local-addr=localhost",
        f"--nproc-per-node={processes}",
        f"--log-dir={directory}/torchrun",
    ]
    what = [f"--max-restarts={MAX_RESTARTS}", "-m", "gatehouse.components.training.program", directory]
    try:
        torchrun([*where, *what])
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        ended = failure.signal_name() if failure.exitcode < 0 else f"exit code {failure.exitcode}"
        sys.exit(f"Worker {rank} was the first to end, with {ended}, after at most {MAX_RESTARTS} restarts.")


if __name__ == "__main__":
    main()
