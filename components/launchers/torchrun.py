"""Runs torchrun so that restarted workers find each other, and that its exit code says how the first worker ended."""

import os
import signal
import sys

from gatehouse.components.launchers.launcher import RETRY_CODE
from gatehouse.process import die_with_parent, follow_owner

RENDEZVOUS_CODE = 128 + signal.SIGHUP
"""Exit code where the machines did not meet, or lost the one on which they met."""


def main() -> None:
    """Run torchrun with our own arguments.

    The process ends with 0, with `RENDEZVOUS_CODE`, or with the `exit_code` of the worker that failed first.
    """
    die_with_parent()
    follow_owner()
    # By default the agent shares its store with the workers. A restarted worker then reads the keys of the attempt
    # before, and waits for workers that are dead.
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.rendezvous.api import RendezvousError
    from torch.distributed.run import main as torchrun

    try:
        torchrun(sys.argv[1:])
    except RendezvousError as error:
        sys.stderr.write(f"The machines did not meet, or lost the machine on which they met: {error}\n")
        sys.exit(RENDEZVOUS_CODE)
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        ended = failure.signal_name() if failure.exitcode < 0 else f"exit code {failure.exitcode}"
        sys.stderr.write(f"Worker {rank} was the first to end, with {ended}. No restart is left.\n")
        sys.exit(exit_code(failure.exitcode))


def exit_code(worker: int) -> int:
    """The exit code that stands for a failed worker.

    Args:
        worker: The exit code of the worker; negative for the signal that ended it.

    Returns:
        128 plus the signal; the worker's own code where it asks for another try; else 1.
    """
    if worker < 0:
        return 128 - worker
    return worker if worker >= RETRY_CODE else 1


if __name__ == "__main__":
    main()
