"""The cluster launcher: it creates a job or finds it again, watches it, fetches the model, and deletes the job."""

import json
import logging
import os
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gatehouse.errors import CorruptArtifactError, GatehouseError, LaunchError, MissingArtifactError
from gatehouse.launchers.kubernetes.api import ApiTimeouts, KubernetesApi
from gatehouse.launchers.kubernetes.operators import ClusterJob, Operator
from gatehouse.launchers.kubernetes.owned import LAUNCH, OwnedJob
from gatehouse.launchers.kubernetes.pod import PodMetrics
from gatehouse.launchers.kubernetes.pods import PodLogs
from gatehouse.launchers.kubernetes.transfer import (
    Inputs,
    fetch_outputs,
    job_digest,
    program_code,
    remove_remains,
    reported_end,
    uploaded_inputs,
    using_checkpoints,
    write_record,
)
from gatehouse.launchers.kubernetes.watch import JobWatch
from gatehouse.launchers.launcher import (
    FAILURE,
    LOCATION,
    LOG,
    METRICS,
    RESULT,
    WEIGHTS,
    TrainingCancelledError,
    TrainingFailedError,
    TrainingJob,
    job_minutes,
    restarts_in,
    result_problem,
    stop_here,
    stopped,
)
from gatehouse.launchers.spec import PyTorchJobLaunch, TrainJobLaunch, division_problem
from gatehouse.launchers.wrapper import COMMAND
from gatehouse.runtime.images import image, training
from gatehouse.store.canonical import digest_of
from gatehouse.store.records import read_records
from gatehouse.store.run import MACHINE, RUN_ID
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.provenance import COMMIT, IMAGE

logger = logging.getLogger(__name__)

_POD = "gatehouse.launchers.kubernetes.pod"


class ClusterLauncher:
    """Runs a job as one object of a cluster's training operator.

    The name of the object follows from run, job and program, so a restarted launcher finds the job of its predecessor.
    The launcher deletes the object when it ends, for whatever reason. If it cannot (for example after SIGKILL), a
    deadline in the object ends the pods, and the cluster deletes the object together with its owner, the launcher's
    pod.
    """

    remote = True

    def __init__(
        self,
        store: ArtifactStore,
        operator: Operator,
        launch: PyTorchJobLaunch | TrainJobLaunch,
        *,
        api: KubernetesApi | None = None,
    ) -> None:
        """Prepare to launch through a store, which carries files and checkpoints, on the cluster of the environment."""
        self._store, self._operator, self._launch = store, operator, launch
        self._api = api or KubernetesApi(ApiTimeouts())
        self._namespace = launch.namespace or self._api.namespace
        self._owned: dict[Path, OwnedJob] = {}
        self._path = "/apis/" + operator.resource.format(namespace=self._namespace)

    def run(self, job: TrainingJob) -> None:
        """Run `job`; see `Launcher`. If it is stopped, its pods get their grace period to save."""
        if stop_here().requested():
            raise stopped()
        settings = self._launch.model_copy(update={"min_nodes": 0}) if job.program == COMMAND else self._launch
        if problem := division_problem(settings, job.processes, "training.parallelism.processes"):
            raise LaunchError(problem)
        for name in (RESULT, WEIGHTS, FAILURE, LOCATION):
            (job.directory / name).unlink(missing_ok=True)
        with uploaded_inputs(self._store, job.directory) as inputs:
            digest = job_digest(inputs, program_code(job.program, job.own))
            name = f"gatehouse-{digest_of([os.environ.get(RUN_ID, ''), job.directory.name, digest])[:16]}"
            self._owned[job.directory] = owned = OwnedJob(self._api, self._path, name, digest)
            log, named = job.directory / LOG, self._launch.nodes > 1
            logs = PodLogs(self._api, self._namespace, self._operator.container, log, named=named)
            try:
                with using_checkpoints(self._store, name, digest):  # Another run of the same job keeps them.
                    self._run(job, inputs, owned, logs)
            except SystemExit:
                # This process must end: its grace period may be too short to read all pods' logs first.
                owned.delete()
                raise
            finally:
                try:
                    logs.finish()
                finally:
                    owned.delete()

    def forget(self, job: TrainingJob) -> None:
        """Remove checkpoints, metrics and reports of the job from the store."""
        owned = self._owned.pop(job.directory)
        try:
            remove_remains(self._store, owned.name, owned.digest)
        except GatehouseError as error:
            logger.warning("The remains of the job %s in the store could not be removed: %s", owned.name, error)

    def _run(self, job: TrainingJob, inputs: Inputs, owned: OwnedJob, logs: PodLogs) -> None:
        body = owned.find()
        adopted = body is not None
        if body is None and self._received_before(job, owned):
            return
        body = body or owned.create(self._body(job, inputs, owned))
        folder = f"jobs/{owned.name}/{body['metadata']['annotations'][LAUNCH]}"

        def reported() -> dict[str, Any]:
            return reported_end(self._store, folder)

        metrics = PodMetrics(self._store, folder, job.directory / METRICS)
        minutes = job.timeout_minutes
        watch = JobWatch(self._api, self._operator, owned, self._launch, minutes, logs, reported, metrics.receive)
        if adopted:
            watch.resume(body)
        try:
            with stop_here().ending(owned.delete):  # The watch sees that the job is gone.
                watch.until_success()
        except TrainingCancelledError:
            if stop_here().requested():
                raise stopped() from None
            raise
        finally:
            metrics.close()
        logs.finish()
        # The job reports success: verify that it left result and weights.
        problem, ended = "", reported()
        if ended.get("outcome") == "succeeded":
            try:
                fetch_outputs(self._store, folder, ended, job.directory)
            except (MissingArtifactError, CorruptArtifactError) as error:
                problem = f"the job reports success, but its result does not verify.\n{error}"
        if problem := problem or result_problem(job.directory):
            raise TrainingFailedError(f"Training failed: {problem}\n{watch.tail()}")
        self._write_location(job, folder, watch.attempts.events)

    def _received_before(self, job: TrainingJob, owned: OwnedJob) -> bool:
        """Fetch the result of an earlier launch whose model was not published, if there is one."""
        keys = self._store.objects.list(f"jobs/{owned.name}")
        for folder in sorted({key.partition("/ended/")[0] for key in keys if "/ended/" in key}):
            ended = reported_end(self._store, folder)
            if ended.get("outcome") != "succeeded":
                continue
            try:
                fetch_outputs(self._store, folder, ended, job.directory)
            except (MissingArtifactError, CorruptArtifactError):
                continue  # The garbage collection has removed it.
            if result_problem(job.directory) == "":
                logger.info("An earlier launch of the job %s has succeeded: its result is used.", owned.name)
                PodMetrics(self._store, folder, job.directory / METRICS).close()
                self._write_location(job, folder)
                return True
        return False

    def _body(self, job: TrainingJob, inputs: Inputs, owned: OwnedJob) -> dict[str, Any]:
        """The object to create. Its record is stored before this returns."""
        launch, identity = self._launch, uuid.uuid4().hex
        folder, processes = f"jobs/{owned.name}/{identity}", job.processes // launch.nodes
        about = {"kind": self._operator.kind, "namespace": self._namespace, "name": owned.name}
        record = write_record(self._store, folder, inputs, job, **about)
        address = launch.store or self._store.address
        pod_image = launch.image or image(training(launch.resources.gpus))
        waits = (f"{launch.grace_seconds}", f"{launch.hang_seconds}", f"{launch.min_nodes}")
        env = {IMAGE: pod_image, MACHINE: launch.machine, COMMIT: os.environ.get(COMMIT, "")}
        return self._operator.build(
            ClusterJob(
                name=owned.name,
                namespace=self._namespace,
                launch=identity,
                digest=owned.digest,
                image=pod_image,
                env={name: value for name, value in env.items() if value},
                command=("python", "-m", _POD, address, folder, record, str(processes), *waits),
                processes=processes,
                deadline_seconds=round(job_minutes(launch.scheduling_minutes, job.timeout_minutes) * 60),
            )
        )

    def _write_location(self, job: TrainingJob, folder: str, restarts: Sequence[dict[str, str]] = ()) -> None:
        """Write where the job ran, as its pods reported, and what started again, for the record of the run."""
        pods = PodMetrics(self._store, folder, job.directory / METRICS).environments()
        environment, launch = pods[-1] if pods else {}, self._launch
        records = read_records(self._store.objects, self._store.objects.list(f"{folder}/attempts"))
        attempts = [line for record in records.values() for line in record["attempts"]] + list(restarts)
        place = {"environment": environment, "machine": launch.machine, "machines": launch.nodes}
        place |= {"restarts": restarts_in(attempts)}
        (job.directory / LOCATION).write_text(json.dumps(place))
