"""The cost of driving pieces that do next to nothing, against an S3 server: none of them remembered, then all.

The server answers each request after `--delay` seconds, as one that is far away. Two processes run the pieces. Prints
seconds by the clock, processor time of the driver alone, and requests, each for one piece; fails where recalling a
piece takes the driver over `MOST` milliseconds by the clock.
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

MOST = 40.0


def main() -> int:
    """Measure; 0 where the limit is kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pieces", type=int, default=1000)
    parser.add_argument("--delay", type=float, default=0.02)
    parser.add_argument("--one", metavar="FOLDER", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        store = ArtifactStore.open(f"s3://{BUCKET}/store")
        requests = [SquareRequest(number=number, folder=options.one) for number in range(options.pieces)]
        began, used = time.perf_counter(), time.process_time()
        run_pieces(store, [(square, request) for request in requests])
        print(json.dumps([time.perf_counter() - began, time.process_time() - used]))
        return 0
    milliseconds = 0.0
    with tempfile.TemporaryDirectory() as folder, s3_server() as proxy:
        proxy.delay = options.delay
        Path(folder, "lines").mkdir()
        root = str(Path(__file__).parents[1])
        variables = os.environ | proxy.environment | {FOLDER: folder, ENGINE: '{"workers": 2}', "PYTHONPATH": root}
        command = [sys.executable, __file__, "--pieces", str(options.pieces), "--one", f"{folder}/lines"]
        for state in ("none remembered", "all remembered"):
            proxy.exchanges.clear()
            output = subprocess.run(command, env=variables, stdout=subprocess.PIPE, text=True, check=True).stdout
            milliseconds, driver = (1000 * seconds / options.pieces for seconds in json.loads(output.splitlines()[-1]))
            asked = {method: proxy.count(method) / options.pieces for method in ("GET", "HEAD", "PUT")}
            listed = ", ".join(f"{count:.1f} {method}" for method, count in asked.items())
            print(f"{state}: {milliseconds:.1f} ms by the clock, {driver:.2f} ms of the driver, {listed}", flush=True)
    print(f"Recalling a piece took {milliseconds:.1f} ms (at most {MOST:g})")
    return 0 if milliseconds <= MOST else 1


if __name__ == "__main__":
    sys.exit(main())
