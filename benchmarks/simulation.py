"""Hours and dollars of tables and workers that nobody has here, from the figures of `scale_pieces.py --figures`.

Each stage costs what was measured, a row: processor time of pieces and of the driver, the time in which the driver
waits for the store, requests, bytes. Pieces share the workers evenly. The driver works while pieces run; a stage
therefore takes the longest of five times, which names its limit: work of the pieces, the driver's processor, its waits,
requests that the store admits, and bytes through the workers' network (the exchange). Each worker also reads the
manifest of its table, which grows with the files. What is assumed and not measured stands in `Assumed`; docs/scale.md
says it in words.
"""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HOUR = 3600.0


@dataclass(frozen=True)
class Assumed:
    """Not measured here: a store such as S3, and machines such as those of a cloud."""

    puts: float = 3500.0  # Requests that write, a second and prefix.
    gets: float = 5500.0  # Requests that read, a second and prefix.
    prefixes: int = 1  # Of the store, over which its keys are spread.
    network: float = 125e6  # Bytes a second of a worker.
    entry: float = 170.0  # Bytes of a file in a manifest.
    parsing: float = 100e6  # Bytes of a manifest that a processor reads a second.
    worker: float = 0.05  # Dollars an hour of a worker: one processor, 4 GB.
    put: float = 5e-6  # Dollars of a request that writes.
    get: float = 4e-7  # Dollars of a request that reads.


def main() -> None:
    """Print a line for each size and number of workers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("figures", type=Path, help="what `scale_pieces.py --figures` wrote")
    parser.add_argument("--rows", default="10e6,1e9,10e9,100e9")
    parser.add_argument("--workers", default="2,16,100,1000")
    parser.add_argument("--rows-per-file", type=float, default=131_072, help="`rows_per_part` of the source")
    parser.add_argument("--serial", default="", help="stages without pieces, such as snapshot")
    options = parser.parse_args()
    measured = json.loads(options.figures.read_text())
    stages = {name: _slope(measured, name) for name in dict.fromkeys(each["stage"] for each in measured)}
    print(
        f"{'rows':>8}{'workers':>9}{'hours':>9}{'dollars':>10}  share of each limit, and the stage that takes longest"
    )
    for rows in map(float, options.rows.split(",")):
        for workers in map(int, options.workers.split(",")):
            serial = options.serial.split(",")
            times = {
                name: _times(stage, rows, 1 if name in serial else workers, rows / options.rows_per_file)
                for name, stage in stages.items()
            }
            print(_line(stages, times, rows, workers), flush=True)


def _slope(measured: list[dict[str, Any]], stage: str) -> dict[str, float]:
    """What a row costs: the difference of the most and the fewest rows, so that starts do not count."""
    every = [_flat(each) for each in measured if each["stage"] == stage]
    first, last = every[0], every[-1]
    if last["rows"] == first["rows"]:
        raise SystemExit(f"{stage}: expected figures of two sizes, found one. Give scale_pieces.py --rows two.")
    return {name: max(0.0, (last[name] - first[name]) / (last["rows"] - first["rows"])) for name in last}


def _flat(figures: dict[str, Any]) -> dict[str, float]:
    asked = figures["requests"]
    names = ("rows", "seconds", "driver", "driver_waits", "sent", "received")
    return {name: figures[name] for name in names} | {
        "puts": asked["PUT"] + asked["POST"],
        "gets": asked["GET"] + asked["HEAD"],
    }


def _times(
    a_row: dict[str, float], rows: float, workers: int, files: float, on: Assumed = Assumed()
) -> dict[str, float]:
    """Seconds that each limit asks of a stage."""
    manifest = files * on.entry
    return {
        "work": (a_row["seconds"] - a_row["driver"]) * rows / workers + manifest / on.parsing,
        "driver": a_row["driver"] * rows,
        "driver's waits": a_row["driver_waits"] * rows,
        "store": rows * max(a_row["puts"] / on.puts, a_row["gets"] / on.gets) / on.prefixes,
        "exchange": ((a_row["sent"] + a_row["received"]) * rows / workers + manifest) / on.network,
    }


def _line(
    stages: dict[str, dict[str, float]],
    times: dict[str, dict[str, float]],
    rows: float,
    workers: int,
    on: Assumed = Assumed(),
) -> str:
    taken = {name: max(of.values()) for name, of in times.items()}
    seconds, slowest = sum(taken.values()), max(taken, key=lambda name: taken[name])
    limits = dict.fromkeys(times[slowest], 0.0)
    for name, of in times.items():
        limits[max(of, key=lambda limit: of[limit])] += taken[name] / seconds
    dollars = seconds / HOUR * workers * on.worker
    dollars += sum(rows * (of["puts"] * on.put + of["gets"] * on.get) for of in stages.values())
    shares = ", ".join(f"{limit} {share:.0%}" for limit, share in limits.items() if share >= 0.005)
    return f"{rows:>8.0e}{workers:>9,}{seconds / HOUR:>9.2f}{dollars:>10.2f}  {shares}; {slowest}"


if __name__ == "__main__":
    main()
