"""A training program without torch, for tests of the wrapper; the file `action` in its directory says what it does."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from gatehouse.launchers.ranks import FLAG, OUTCOME, Flag, Heartbeat, Preempted
from gatehouse.runtime.process import die_with_parent


def preload(directory: Path) -> bool:
    return True


def main() -> None:
    directory, rank = Path(sys.argv[1]), int(os.environ["RANK"])
    die_with_parent()
    action = json.loads((directory / "action").read_text())
    heartbeat = Heartbeat.of_environment(rank)
    assert heartbeat is not None
    (directory / f"world-{os.environ['WORLD_SIZE']}-{rank}-{os.environ['TORCHELASTIC_RESTART_COUNT']}").write_text(
        str(os.getpid())
    )
    print("torch is there:", "torch" in sys.modules)
    print("the store of the agent:", os.environ["TORCHELASTIC_USE_AGENT_STORE"], flush=True)
    step = 0
    while step < action["steps"]:
        time.sleep(0.05)
        step += 1
        heartbeat.beat(step)
        if rank == 1 and action["what"] == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if rank == 1 and action["what"] == "fail":
            sys.exit(3)
        if rank == 1 and action["what"] == "hang":
            wait_for_ever(directory)
        if action["what"] != "deaf" and Flag.read(Path(os.environ[FLAG])):
            Preempted(step, saved=True).write(Path(os.environ[OUTCOME]))
            return


def wait_for_ever(directory: Path) -> None:
    """With a checkpoint writer beside it, which finishes when its rank is gone."""
    finish = f"import sys, time; sys.stdin.read(); time.sleep(0.5); open({str(directory / 'written')!r}, 'w')"
    with subprocess.Popen([sys.executable, "-S", "-c", finish], stdin=subprocess.PIPE, process_group=0):
        time.sleep(600)


if __name__ == "__main__":
    main()
