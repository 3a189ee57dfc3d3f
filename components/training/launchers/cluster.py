"""The cluster launcher: creates a job or finds it again, watches it, tells the truth about its end, and removes it."""

import os
import uuid
from typing import Any

from gatehouse.components.artifacts.canonical import digest_of
from gatehouse.components.artifacts.run import RUN_ID
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.training.launcher import (
    FAILURE,
    LOG,
    RESULT,
    WEIGHTS,
    TrainingFailedError,
    TrainingJob,
    problem,
)
from gatehouse.components.training.launchers.api import KubernetesApi, Pace
from gatehouse.components.training.launchers.claim import Claim
from gatehouse.components.training.launchers.deadlines import Deadlines
from gatehouse.components.training.launchers.logs import PodLogs
from gatehouse.components.training.launchers.operator import LAUNCH, Operator, Order
from gatehouse.components.training.launchers.spec import PyTorchJobLaunch, TrainJobLaunch, uneven
from gatehouse.components.training.launchers.travel import (
    Inputs,
    drop_checkpoints,
    fetch_outputs,
    job_digest,
    kept_inputs,
    outcome,
    program_code,
    write_identity,
)
from gatehouse.components.training.launchers.watch import Watch
from gatehouse.errors import ConfigurationError, CorruptArtifactError, MissingArtifactError
from gatehouse.images import image

_POD = "gatehouse.components.training.pod"
_MARGIN_SECONDS = 900


class ClusterLauncher:
    """Runs a job as one object of a cluster's training operator.

    The object's name comes from run, job and program, so a launcher that starts again finds the job of the one before.
    The launcher removes the object when it ends, however it ends; a deadline in the object, and the launcher's own pod
    as its owner, do so where the launcher cannot.
    """

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
        self._path = "/apis/" + operator.resource.format(namespace=self._namespace)

    def run(self, job: TrainingJob) -> None:
        """Run `job`; see `Launcher`.

        Raises:
            ConfigurationError: if the processes cannot be divided among the nodes.
        """
        if wrong := uneven(self._launch, job.processes, "training.processes"):
            raise ConfigurationError(wrong)
        for name in (RESULT, WEIGHTS, FAILURE):
            (job.directory / name).unlink(missing_ok=True)
        with kept_inputs(self._store, job.directory) as inputs:
            digest = job_digest(inputs, program_code())
            name = f"gatehouse-{digest_of([os.environ.get(RUN_ID, ''), job.directory.name, digest])[:16]}"
            claim = Claim(self._api, self._path, name, digest)
            logs = PodLogs(
                self._api,
                self._namespace,
                self._operator.container,
                job.directory / LOG,
                named=self._launch.nodes > 1,
            )
            try:
                self._run(job, inputs, claim, logs)
            except SystemExit:
                claim.withdraw()  # Told to end: the grace period may not last for the logs of every pod.
                raise
            finally:
                logs.finish()
                claim.withdraw()

    def _run(self, job: TrainingJob, inputs: Inputs, claim: Claim, logs: PodLogs) -> None:
        found = claim.find()
        adopted = found is not None
        found = found or claim.create(self._body(job, inputs, claim))
        folder = f"jobs/{claim.name}/{found['metadata']['annotations'][LAUNCH]}"

        def reported() -> dict[str, Any]:
            return outcome(self._store, folder)

        watch = Watch(self._api, self._operator, claim, self._namespace, logs, reported)
        deadlines = Deadlines(self._launch, self._launch.fewest, job.timeout_minutes, logs.tail, watch.events)
        if adopted:
            deadlines.resume(found["metadata"]["creationTimestamp"], watch.pods())
        watch.until_success(deadlines)
        logs.finish()
        self._receive(job, folder, reported(), watch.tail())
        drop_checkpoints(self._store, claim.digest)

    def _body(self, job: TrainingJob, inputs: Inputs, claim: Claim) -> dict[str, Any]:
        """The object to create; what it is has been written to the store before this returns."""
        launch, identity = self._launch, uuid.uuid4().hex
        folder, processes = f"jobs/{claim.name}/{identity}", job.processes // launch.nodes
        about = {"kind": self._operator.kind, "namespace": self._namespace, "name": claim.name}
        record = write_identity(self._store, folder, inputs, **about)
        address = launch.store or self._store.address
        order = Order(
            name=claim.name,
            namespace=self._namespace,
            launch=identity,
            digest=claim.digest,
            image=launch.image or image("gatehouse"),
            command=(self._python, "-m", _POD, address, folder, record, str(processes), f"{launch.grace_seconds}"),
            processes=processes,
            deadline_seconds=round((launch.scheduling_minutes + job.timeout_minutes) * 60) + _MARGIN_SECONDS,
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
