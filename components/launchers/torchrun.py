"""Runs torchrun with the cures that it needs here, and tells in one line and an exit code which worker ended first."""

import os
import signal
import sys

from gatehouse.components.launchers.launcher import RETRY_CODE
from gatehouse.process import die_with_parent, follow_owner

NOT_MET_CODE = 128 + signal.SIGHUP


def main() -> None:
    """Run torchrun with our arguments; ends with 0, 129, or the `code` of the first worker that ended."""
    die_with_parent()
    follow_owner()
    # The agent's store is shared with the workers otherwise, and a restarted worker then meets the dead attempt's keys.
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.rendezvous.api import RendezvousError
    from torch.distributed.run import main as torchrun

    try:
        torchrun(sys.argv[1:])
    except RendezvousError as error:
        sys.stderr.write(f"The machines do not meet, or the one that they met on is gone: {error}\n")
        sys.exit(NOT_MET_CODE)
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        ended = failure.signal_name() if failure.exitcode < 0 else f"exit code {failure.exitcode}"
        sys.stderr.write(f"Worker {rank} was the first to end, with {ended}, after all restarts that are allowed.\n")
        sys.exit(code(failure.exitcode))


def code(worker: int) -> int:
    """Ours for the first worker's: 128 and its signal; its own where it is worth another try; 1 for any other."""
    if worker < 0:
        return 128 - worker
    return worker if worker >= RETRY_CODE else 1


if __name__ == "__main__":
    main()
