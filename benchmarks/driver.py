"""The cost of driving pieces that do next to nothing, against an S3 server: none of them remembered, then all.

The server answers each request after `--delay` seconds, as one that is far away. Two processes run the pieces. Prints
milliseconds by the clock, those of the driver's processor, and requests, each for one piece. Fails where recalling
pieces side by side takes over `MOST` of the time by the clock of recalling them one after another.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from gatehouse.pieces.piece import run_pieces
from gatehouse.runtime.variables import ENGINE
from gatehouse.store.objects.remote import FOLDER
from gatehouse.store.store import ArtifactStore
from tests.pieces.squares import SquareRequest, square
from tests.stand_ins.servers import BUCKET, s3_server

MOST = 0.5


def main() -> int:
    """Measure; 0 where the limit is kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pieces", type=int, default=1000)
    parser.add_argument("--delay", type=float, default=0.02)
    parser.add_argument("--one", metavar="FOLDER", help=argparse.SUPPRESS)
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        store = ArtifactStore.open(f"s3://{BUCKET}/store")
        requests = [SquareRequest(number=number, folder=options.one) for number in range(options.pieces)]
        began, used = time.perf_counter(), time.process_time()
        run_pieces(store, [(square, request) for request in requests])
        taken = [time.perf_counter() - began, time.process_time() - used]
        if options.alone:
            began = time.perf_counter()
            for request in requests:
                square.recall(request, store, square.key(request))
            taken.append(time.perf_counter() - began)
        print(json.dumps(taken))
        return 0
    with tempfile.TemporaryDirectory() as folder, s3_server() as proxy:
        proxy.delay = options.delay
        Path(folder, "lines").mkdir()
        root = str(Path(__file__).parents[1])
        variables = os.environ | proxy.environment | {FOLDER: folder, ENGINE: '{"workers": 2}', "PYTHONPATH": root}
        command = [sys.executable, __file__, "--pieces", str(options.pieces), "--one", f"{folder}/lines"]
        for state, more in {"none remembered": [], "all remembered": [], "and one after another": ["--alone"]}.items():
            proxy.exchanges.clear()
            output = subprocess.run([*command, *more], env=variables, stdout=subprocess.PIPE, text=True, check=True)
            taken = [1000 * seconds / options.pieces for seconds in json.loads(output.stdout.splitlines()[-1])]
            asked = {method: proxy.count(method) / options.pieces for method in ("GET", "HEAD", "PUT")}
            listed = ", ".join(f"{count:.1f} {method}" for method, count in asked.items())
            print(f"{state}: {taken[0]:.1f} ms by the clock, {taken[1]:.2f} ms of the driver, {listed}", flush=True)
    ratio = taken[0] / taken[2]
    print(f"recalling side by side, of one after another: {ratio:.2f} (at most {MOST})")
    return 0 if ratio <= MOST else 1


if __name__ == "__main__":
    sys.exit(main())
