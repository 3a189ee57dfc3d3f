"""A call of `metrics.log` in a training loop: ours, MLflow's own and MLflow's asynchronous one, over one MLflow server.

Each loop runs in a process of its own, takes real training steps, and is killed with SIGKILL: while the server answers
(up), answers after half a second (slow), or answers nothing (down). Then the server is there again, and what arrived is
counted: ours after the rest was sent. Fails if the p99 of ours is a millisecond or more, or if it loses more than the
calls of its last second.

A call counts with its processor time, and with its whole time where it gave the processor up itself (a lock, a request,
a write), which the kernel counts as a voluntary context switch: what other processes take of a shared machine is not
the call's. `--only ours` runs one logger alone.
"""

import argparse
import contextlib
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tests.tracking.servers import mlflow_server, proxied

P99_MS, LOST_SECONDS = 1.0, 1.0
STATES = {"up": (0.0, False), "slow": (0.5, False), "down": (0.0, True)}
LOGGERS = ("ours", "mlflow async", "mlflow")
_MOST = 1 << 20


def main() -> int:
    """Measure, print, and say whether the limits are kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=6.0, help="Of each loop at most.")
    parser.add_argument("--calls", type=int, default=2000, help="Of each loop at most.")
    parser.add_argument("--only", choices=LOGGERS)
    parser.add_argument("--train", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train:
        _train(options.train[0], Path(options.train[1]), options.train[2], options.calls)
    failed = False
    with tempfile.TemporaryDirectory() as directory, mlflow_server(Path(directory)) as port, proxied(port) as proxy:
        os.environ |= {"MLFLOW_TRACKING_URI": proxy.url, "MLFLOW_DISABLE_TELEMETRY": "true"}
        os.environ |= {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1"}
        print(
            f"{'server':<8}{'logger':<14}{'calls':>8}{'p50 us':>10}{'p99 us':>10}{'lost':>8}{'in the last second':>20}"
        )
        for state in STATES:
            for logger in [options.only] if options.only else LOGGERS:
                folder, job = Path(directory), f"{logger}-{state}".replace(" ", "-")
                command = [sys.executable, __file__, "--train", logger, directory, job, "--calls", str(options.calls)]
                with subprocess.Popen(command) as loop:
                    while not (folder / f"{job}.ready").exists():
                        time.sleep(0.01)
                    proxy.delay, proxy.down = STATES[state]
                    (folder / f"{job}.go").touch()
                    record = np.memmap(folder / f"{job}.times", dtype=np.int64, mode="r", shape=(_MOST, 2))
                    until = time.monotonic() + options.seconds
                    while time.monotonic() < until and record[0, 0] < options.calls:
                        time.sleep(0.005)
                    loop.kill()
                    killed = time.time_ns()
                proxy.delay, proxy.down = 0.0, False
                times, at = np.array(record[1 : record[0, 0] + 1]).T
                lost, last = len(at) - _arrived(folder, logger, job), int((at > killed - LOST_SECONDS * 1e9).sum())
                p50, p99 = np.percentile(times[min(100, len(times) // 2) :] / 1000, [50, 99])
                print(f"{state:<8}{logger:<14}{len(at):>8}{p50:>10.1f}{p99:>10.1f}{lost:>8}{last:>16}", flush=True)
                failed |= logger == "ours" and (p99 >= P99_MS * 1000 or lost > last)
    print("MISSED a limit." if failed else "All limits are kept.")
    return int(failed)


def _train(logger: str, folder: Path, job: str, calls: int) -> None:
    """Train until killed; the times file holds the number of calls that returned, and what each took, and when."""
    import torch
    from torch import nn

    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 1))
    optimizer = torch.optim.AdamW(model.parameters())
    rows, labels = torch.randn(256, 64), torch.rand(256, 1)
    log = _logger(logger, folder, job)
    record = np.memmap(folder / f"{job}.times", dtype=np.int64, mode="w+", shape=(_MOST, 2))
    (folder / f"{job}.ready").touch()
    while not (folder / f"{job}.go").exists():
        time.sleep(0.01)
    for step in range(calls):
        loss = nn.functional.binary_cross_entropy_with_logits(model(rows), labels)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        optimizer.step()
        metrics = {"loss": float(loss.detach()), "grad_norm": 1.0, "learning_rate": 1e-3}
        before = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
        began, worked = time.perf_counter_ns(), time.thread_time_ns()
        log(metrics, step)
        worked, whole = time.thread_time_ns() - worked, time.perf_counter_ns() - began
        waited = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw > before
        record[step + 1] = whole if waited else worked, time.time_ns()
        record[0, 0] = step + 1
    signal.pause()


def _logger(logger: str, folder: Path, job: str) -> Callable[[dict[str, float], int], object]:
    if logger == "ours":
        from gatehouse.store.store import ArtifactStore
        from gatehouse.tracking.metrics_file import MetricsFile
        from gatehouse.tracking.sending import tracked_job

        # As in a training, another process sends, and ends after the loop.
        loop = os.getpid()
        if os.fork() == 0:
            with tracked_job(ArtifactStore.open(folder / "store"), job, "benchmark", folder / f"{job}.link", live=True):
                while os.getppid() == loop:
                    time.sleep(0.01)
            os._exit(0)
        while not (folder / f"{job}.link").is_symlink():
            time.sleep(0.01)
        return MetricsFile(folder / f"{job}.link").log
    import mlflow

    mlflow.set_experiment("benchmark")
    mlflow.start_run(tags={"gatehouse.job": job})

    def log(metrics: dict[str, float], step: int) -> None:
        # A training loop that is to survive a server that is down would have to write it so.
        with contextlib.suppress(mlflow.MlflowException):
            mlflow.log_metrics(metrics, step, synchronous=logger == "mlflow")

    log({"warm": 0.0}, 0)
    return log


def _arrived(folder: Path, logger: str, job: str) -> int:
    """Steps of a loop whose loss is in MLflow, once what can be sent has been."""
    from mlflow import MlflowClient

    from gatehouse.store.store import ArtifactStore
    from gatehouse.tracking.sending import is_unsent, send_rest

    store, until = ArtifactStore.open(folder / "store"), time.monotonic() + 120
    while is_unsent(store, job) and time.monotonic() < until:
        send_rest(store)
        time.sleep(0.1)
    client = MlflowClient()
    experiment = client.get_experiment_by_name("benchmark")
    runs = client.search_runs([experiment.experiment_id], f"tags.`gatehouse.job` = '{job}'") if experiment else []
    return len({point.step for run in runs for point in client.get_metric_history(run.info.run_id, "loss")})


if __name__ == "__main__":
    sys.exit(main())
