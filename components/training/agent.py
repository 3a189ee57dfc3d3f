"""Runs torchrun with the cures that it needs here, and tells in one line and an exit code which worker ended first."""

import os
import signal
import sys

from gatehouse.process import die_with_parent, follow_owner

NOT_MET_CODE = 128 + signal.SIGHUP


def main() -> None:
    """Run torchrun with our arguments; ends with 0, 128 and the signal that ended the first worker, 129, or 1."""
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
        signalled = failure.exitcode < 0
        ended = failure.signal_name() if signalled else f"exit code {failure.exitcode}"
        sys.stderr.write(f"Worker {rank} was the first to end, with {ended}, after all restarts that are allowed.\n")
        sys.exit(128 - failure.exitcode if signalled else 1)


if __name__ == "__main__":
    main()
