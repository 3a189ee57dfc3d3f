"""The cluster launcher: creates a job or finds it again, watches it, tells the truth about its end, and removes it."""

import json
import logging
import os
import uuid
from pathlib import Path
from typing import Any

from gatehouse.components.artifacts.canonical import digest_of
from gatehouse.components.artifacts.run import RUN_ID
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.launchers.kubernetes.api import KubernetesApi, Pace
from gatehouse.components.launchers.kubernetes.logs import PodLogs
from gatehouse.components.launchers.kubernetes.operator import LAUNCH, Operator, Order
from gatehouse.components.launchers.kubernetes.ownership import Claim
from gatehouse.components.launchers.kubernetes.pod_metrics import Arriving
from gatehouse.components.launchers.kubernetes.transfer import (
    Inputs,
    checkpoints_in_use,
    fetch_outputs,
    forget,
    job_digest,
    kept_inputs,
    launches,
    outcome,
    program_code,
    write_identity,
)
from gatehouse.components.launchers.kubernetes.watch import Watch
from gatehouse.components.launchers.launcher import (
    FAILURE,
    LOG,
    METRICS,
    PLACE,
    RESULT,
    WEIGHTS,
    TrainingFailedError,
    TrainingJob,
    problem,
)
from gatehouse.components.launchers.spec import PyTorchJobLaunch, TrainJobLaunch, division_problem
from gatehouse.components.launchers.timeouts import job_minutes
from gatehouse.components.tracking.cost import MACHINE
from gatehouse.components.tracking.environment import COMMIT, IMAGE
from gatehouse.errors import ConfigurationError, CorruptArtifactError, GatehouseError, MissingArtifactError
from gatehouse.images import image

logger = logging.getLogger(__name__)

_POD = "gatehouse.components.launchers.kubernetes.pod"


class ClusterLauncher:
    """Runs a job as one object of a cluster's training operator.

    The object's name comes from run, job and program, so a launcher that starts again finds the job of the one before.
    The launcher removes the object when it ends, however it ends. Where it cannot, a deadline in the object ends the
    pods, and the object goes when the launcher's own pod, its owner, is removed.
    """

    remote = True

    def __init__(
        self,
        store: ArtifactStore,
        operator: Operator,
        launch: PyTorchJobLaunch | TrainJobLaunch,
        *,
        api: KubernetesApi | None = None,
        python: str = "python",
    ) -> None:
        """Prepare to launch.

        Args:
            store: Through which files travel.
            operator: Of which kind the job is.
            launch: Where it runs.
            api: The cluster; None for the one that the environment names.
            python: The interpreter in the image.
        """
        self._store, self._operator, self._launch, self._python = store, operator, launch, python
        self._api = api or KubernetesApi(Pace())
        self._namespace = launch.namespace or self._api.namespace
        self._claims: dict[Path, Claim] = {}
        self._path = "/apis/" + operator.resource.format(namespace=self._namespace)

    def run(self, job: TrainingJob) -> None:
        """Run `job`; see `Launcher`.

        Raises:
            ConfigurationError: if the processes cannot be divided among the nodes.
        """
        if wrong := division_problem(self._launch, job.processes, "training.processes", job.model_size):
            raise ConfigurationError(wrong)
        for name in (RESULT, WEIGHTS, FAILURE, PLACE):
            (job.directory / name).unlink(missing_ok=True)
        with kept_inputs(self._store, job.directory) as inputs:
            digest = job_digest(inputs, program_code(job.program, job.builder))
            name = f"gatehouse-{digest_of([os.environ.get(RUN_ID, ''), job.directory.name, digest])[:16]}"
            self._claims[job.directory] = claim = Claim(self._api, self._path, name, digest)
            logs = PodLogs(
                self._api,
                self._namespace,
                self._operator.container,
                job.directory / LOG,
                named=self._launch.nodes > 1,
            )
            try:
                with checkpoints_in_use(self._store, digest):
                    self._run(job, inputs, claim, logs)
            except SystemExit:
                claim.withdraw()  # Told to end: the grace period may not last for the logs of every pod.
                raise
            finally:
                try:
                    logs.finish()
                finally:
                    claim.withdraw()

    def forget(self, job: TrainingJob) -> None:
        """Remove checkpoints, metrics and word of the end of a job: a launcher that starts again finds the model."""
        claim = self._claims.pop(job.directory)
        try:
            forget(self._store, claim.name, claim.digest)
        except GatehouseError as error:
            logger.warning("What is left of the job %s in the store could not be removed: %s", claim.name, error)

    def _run(self, job: TrainingJob, inputs: Inputs, claim: Claim, logs: PodLogs) -> None:
        found = claim.find()
        adopted = found is not None
        if found is None and self._received_before(job, claim):
            return
        found = found or claim.create(self._body(job, inputs, claim))
        folder = f"jobs/{claim.name}/{found['metadata']['annotations'][LAUNCH]}"

        def reported() -> dict[str, Any]:
            return outcome(self._store, folder)

        arriving = Arriving(self._store, folder, job.directory / METRICS)
        minutes = job.timeout_minutes
        watch = Watch(self._api, self._operator, claim, self._launch, minutes, logs, reported, arriving.take)
        if adopted:
            watch.resume(found)
        try:
            watch.until_success()
        finally:
            arriving.close()
        logs.finish()
        self._receive(job, folder, reported(), watch.tail())

    def _received_before(self, job: TrainingJob, claim: Claim) -> bool:
        """Take what a launch before this one made, whose launcher was ended before its model was published."""
        for folder in launches(self._store, claim.name):
            ended = outcome(self._store, folder)
            if ended.get("outcome") != "succeeded":
                continue
            try:
                fetch_outputs(self._store, folder, ended, job.directory)
            except (MissingArtifactError, CorruptArtifactError):
                continue  # The collector has taken it.
            if problem(job.directory) == "":
                logger.info("The job %s has ended well before: its result is taken.", claim.name)
                Arriving(self._store, folder, job.directory / METRICS).close()
                self._tell_place(job, folder)
                return True
        return False

    def _body(self, job: TrainingJob, inputs: Inputs, claim: Claim) -> dict[str, Any]:
        """The object to create; what it is has been written to the store before this returns."""
        launch, identity = self._launch, uuid.uuid4().hex
        folder, processes = f"jobs/{claim.name}/{identity}", job.processes // launch.nodes
        about = {"kind": self._operator.kind, "namespace": self._namespace, "name": claim.name}
        record = write_identity(self._store, folder, inputs, job, **about)
        address = launch.store or self._store.address
        made, waits = launch.image or image("gatehouse"), (f"{launch.grace_seconds}", f"{launch.hang_seconds}")
        env = {IMAGE: made, MACHINE: launch.machine, COMMIT: os.environ.get(COMMIT, "")}
        order = Order(
            name=claim.name,
            namespace=self._namespace,
            launch=identity,
            digest=claim.digest,
            image=made,
            env={name: value for name, value in env.items() if value},
            command=(self._python, "-m", _POD, address, folder, record, str(processes), *waits),
            processes=processes,
            deadline_seconds=round(job_minutes(launch.scheduling_minutes, job.timeout_minutes) * 60),
        )
        return self._operator.build(order)

    def _receive(self, job: TrainingJob, folder: str, ended: dict[str, Any], tail: str) -> None:
        """Take result and weights; a job that reports success without them has failed."""
        wrong = ""
        if ended.get("outcome") == "succeeded":
            try:
                fetch_outputs(self._store, folder, ended, job.directory)
            except (MissingArtifactError, CorruptArtifactError) as error:
                wrong = f"the job reports success, but its result does not verify.\n{error}"
        wrong = wrong or problem(job.directory)
        if wrong:
            raise TrainingFailedError(f"Training failed: {wrong}\n{tail}")
        self._tell_place(job, folder)

    def _tell_place(self, job: TrainingJob, folder: str) -> None:
        """Leave what the pods said of themselves, for the record of the run."""
        pods = Arriving(self._store, folder, job.directory / METRICS).environments()
        place = {
            "environment": pods[-1] if pods else {},
            "machine": self._launch.machine,
            "machines": self._launch.nodes,
        }
        (job.directory / PLACE).write_text(json.dumps(place))
