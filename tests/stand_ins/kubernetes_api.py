"""A small stand-in for the Kubernetes API, with real CRD schemas at its door and scripted operators behind it.

It takes only objects that a cluster would take: every field is known to the schema, and of its type. What happens to a
job then is a scenario, a function `(cluster, job)` that runs in a thread of its own, in place of operator, scheduler
and kubelet.
"""

import copy
import itertools
import json
import re
import subprocess
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import requests
import yaml

from tests.stand_ins.http_server import Handler, listening
from tests.stand_ins.kubernetes_apply import Managers, apply
from tests.stand_ins.kubernetes_kinds import KINDS, Object, restart_policy, validator

NAMESPACE = "ml"
_GRACE = 0.2
"""How long a pod is there yet after it was deleted, in seconds."""


@dataclass
class Cluster:
    """The state of the stand-in; rights are group, resource and verb.

    Attributes:
        faults: Of the next requests: an HTTP status, `reset`, `close` or `gone` (both for watches), or None.
        permissions: The right that each request needed.
        objects: What a GET finds besides jobs and pods, by path.
        granted: The rights that a review allows.
        accounts: The user and the audiences of each token that a review knows.
        changes: Every change of a pod, as version and event of a watch.
        lacks: Fields of a job's spec that its CRD does not know, as that of an earlier release.
        applied: Who set which fields of an object, by its path.
        applies: What its controller does after the spec of an object was changed by an apply.
        reached: Addresses of the servers in pods, by the name of the pod.
        unserved: Kinds of jobs, in the plural, whose operator is not installed.
    """

    scenario: Callable[["Cluster", Object], None]
    token: str = "token"
    port: int = 0
    jobs: dict[str, Object] = field(default_factory=dict)
    pods: dict[str, Object] = field(default_factory=dict)
    logs: dict[str, list[str]] = field(default_factory=dict)
    events: list[Object] = field(default_factory=list)
    faults: deque[int | str | None] = field(default_factory=deque)
    forbidden: set[tuple[str, str, str]] = field(default_factory=set)
    requests: list[str] = field(default_factory=list)
    permissions: set[tuple[str, str, str]] = field(default_factory=set)
    created: list[Object] = field(default_factory=list)
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    log: Path = Path("none")
    errors: list[BaseException] = field(default_factory=list)
    objects: dict[str, Object] = field(default_factory=dict)
    granted: set[tuple[str, str, str]] = field(default_factory=set)
    reviews: list[Object] = field(default_factory=list)
    accounts: dict[str, tuple[str, list[str]]] = field(default_factory=dict)
    lacks: tuple[str, ...] = ()
    applied: dict[str, Managers] = field(default_factory=dict)
    applies: Callable[["Cluster", Object], None] = lambda cluster, thing: None
    reached: dict[str, str] = field(default_factory=dict)
    unserved: tuple[str, ...] = ()
    changed: threading.Condition = field(default_factory=threading.Condition)
    changes: list[tuple[int, Object]] = field(default_factory=list)
    _versions: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def touch(self, thing: Object, event: str = "MODIFIED") -> None:
        """Give an object a new version, and wake those who watch."""
        with self.changed:
            version = next(self._versions)
            thing["metadata"]["resourceVersion"] = str(version)
            if thing["metadata"].get("uid") in self.logs:  # It is a pod.
                self.changes.append((version, copy.deepcopy({"type": event, "object": thing})))
            self.changed.notify_all()

    def changes_since(self, version: int, until: float) -> list[Object]:
        """The changes of pods after a version, as soon as there are any, or none at a time."""
        with self.changed:
            self.changed.wait_for(
                lambda: self.changes and self.changes[-1][0] > version, max(0.0, until - time.monotonic())
            )
            return [event for changed, event in self.changes if changed > version]

    def add_pod(self, job: Object, name: str = "master-0", phase: str = "Pending", **status: Any) -> Object:
        """Add a pod of the job."""
        kind, metadata = KINDS[job["kind"]], job["metadata"]
        full = f"{metadata['name']}-{name}"
        labels = {kind.label: metadata["name"]}
        about = {"name": full, "uid": uuid.uuid4().hex, "labels": labels, "creationTimestamp": _now()}
        pod = {"metadata": about, "status": {"phase": phase} | status}
        self.pods[full] = pod
        self.logs[about["uid"]] = []
        self.touch(pod, "ADDED")
        return pod

    def set_pod(self, job: Object, pod: Object, phase: str, state: Object | None = None, **status: Any) -> None:
        """Change a pod's status; `state` is that of its container. The job's object stays as it was."""
        container = {"name": KINDS[job["kind"]].container, "state": state or {}}
        pod["status"] = {"phase": phase, "containerStatuses": [container]} | status
        self.touch(pod)

    def start(self, job: Object, pod: Object) -> None:
        """Let a pod run."""
        self.set_pod(job, pod, "Running", {"running": {"startedAt": _now()}})

    def end(self, job: Object, pod: Object, code: int, reason: str = "", at: str = "", **status: Any) -> None:
        """Let a pod's container end, now or `at` a time."""
        ended = {"exitCode": code, "reason": reason or ("Error" if code else "Completed"), "finishedAt": at or _now()}
        self.set_pod(job, pod, "Failed" if code else "Succeeded", {"terminated": ended}, **status)

    def fail(self, job: Object, pod: Object, code: int, reason: str = "", **status: Any) -> Object | None:
        """Let a pod fail, and do what its operator does then: returns the pod that takes its place.

        Training Operator v1 makes a pod of a PyTorchJob anew after 128 and above, for ever: its backoff limit counts
        restarts of containers, not pods that are made anew. It deletes the failed pod in the reconcile that sees it,
        and as its containers have ended, the pod is gone at once. Else the job has failed, and None is returned; the
        runtime of a TrainJob starts nothing again here.
        """
        self.end(job, pod, code, reason, **status)
        if job["kind"] != "PyTorchJob" or code < 128 or restart_policy(job) != "ExitCode":
            self.conclude(job, succeeded=False, reason=f"{job['kind']}Failed", message="a replica failed.")
            return None
        return self.replace(job, pod)

    def replace(self, job: Object, pod: Object) -> Object | None:
        """Delete a pod, and make another of its name at once, as the operator does; None if the job is gone."""
        if self.pods.pop(pod["metadata"]["name"], None) is None or job["metadata"].get("deleted"):
            return None
        pod["metadata"]["deletionTimestamp"] = _now()
        self.touch(pod, "DELETED")
        restarting = {"type": "Restarting", "status": "True", "reason": "PyTorchJobRestarting", "message": ""}
        job.setdefault("status", {})["conditions"] = [restarting | {"lastTransitionTime": _now()}]
        self.touch(job)
        return self.add_pod(job, pod["metadata"]["name"].removeprefix(f"{job['metadata']['name']}-"))

    def suspend(self, job: Object, pod: Object) -> None:
        """Suspend a job of one pod as Kueue does to preempt it: the pod is told to end, and is deleted."""
        job["spec"]["runPolicy"]["suspend"] = True
        self.touch(job)
        self._begin_to_delete(pod)
        self.end(job, pod, 143)
        self.await_looks(2)
        self._end_deletion([pod])

    def resume(self, job: Object) -> Object:
        """Let a suspended job go on: returns its new pod."""
        job["spec"]["runPolicy"]["suspend"] = False
        self.touch(job)
        return self.add_pod(job)

    def await_looks(self, number: int) -> None:
        """Wait until the pods have been listed so often, or until nobody lists them any more."""
        self.await_requests("/pods", number)

    def await_requests(self, ending: str, number: int) -> None:
        """Wait until so many requests of paths that end like this were made, or until nobody makes any."""
        began, deadline = len(self.requests), time.monotonic() + 10
        while self.jobs and time.monotonic() < deadline:
            if sum(request.endswith(ending) for request in self.requests[began:]) >= number:
                return
            time.sleep(0.005)

    def say(self, pod: Object, text: str) -> None:
        """Write a line to a pod's log."""
        with self.changed:
            self.logs[pod["metadata"]["uid"]].append(f"{datetime.now(UTC).isoformat()[:-6]}000Z {text}")
            self.changed.notify_all()

    def await_log(self, text: str, times: int = 1) -> None:
        """Wait until the launcher has written a line, so often, or until the job is deleted."""
        deadline = time.monotonic() + 60
        while self.jobs and (not self.log.exists() or self.log.read_text().count(text) < times):
            assert time.monotonic() < deadline, f"{text} is not in {self.log}"
            time.sleep(0.005)

    def play(self, job: Object) -> None:
        """Run the scenario of a job."""
        try:
            self.scenario(self, job)
        except BaseException as error:
            self.errors.append(error)

    def conclude(self, job: Object, *, succeeded: bool, reason: str = "Done", message: str = "It ended.") -> None:
        """Set the condition that ends the job, beside one that does not hold, as operators leave them."""
        condition = KINDS[job["kind"]].success if succeeded else "Failed"
        other = "Failed" if succeeded else KINDS[job["kind"]].success
        job.setdefault("status", {})["conditions"] = [
            {"type": other, "status": "False", "reason": "No", "message": ""},
            {"type": condition, "status": "True", "reason": reason, "message": message},
        ]
        self.touch(job)

    def delete(self, path: str) -> None:
        """Delete a job, in the background: its object goes at once, and its pods when their containers have ended."""
        job = self.jobs.pop(path)
        label = KINDS[job["kind"]].label
        pods_of_job = [
            pod for pod in self.pods.values() if pod["metadata"]["labels"].get(label) == job["metadata"]["name"]
        ]
        for pod in pods_of_job:
            self._begin_to_delete(pod)
        job["metadata"]["deleted"] = True
        self.touch(job)
        for process in self.processes:
            process.terminate()
        threading.Timer(_GRACE, self._end_deletion, [pods_of_job]).start()

    def _begin_to_delete(self, pod: Object) -> None:
        pod["metadata"] |= {"deletionTimestamp": _now(), "deletionGracePeriodSeconds": 30}
        self.touch(pod)

    def _end_deletion(self, pods: list[Object]) -> None:
        for pod in pods:
            if self.pods.get(pod["metadata"]["name"]) is pod:
                del self.pods[pod["metadata"]["name"]]
                self.touch(pod, "DELETED")

    def kubeconfig(self, folder: Path) -> str:
        """Write a kubeconfig that leads here."""
        (folder / "token").write_text(self.token)
        body = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "here",
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me", "namespace": NAMESPACE}}],
            "clusters": [{"name": "here", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}],
            "users": [{"name": "me", "user": {"tokenFile": str(folder / "token")}}],
        }
        (folder / "kubeconfig").write_text(yaml.safe_dump(body))
        return str(folder / "kubeconfig")


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _merge(target: Object, patch: Object) -> None:
    """As a merge patch does: maps are merged, all else is replaced, and null removes."""
    for name, value in patch.items():
        if value is None:
            target.pop(name, None)
        elif isinstance(value, dict) and isinstance(target.get(name), dict):
            _merge(target[name], value)
        else:
            target[name] = value


def _request(method: str, path: str, query: dict[str, str]) -> tuple[str, str, str]:
    """What a role must grant for a request; see the Kubernetes reference on request verbs."""
    group = path.split("/")[2] if path.startswith("/apis/") else ""
    resource, _, rest = path.partition("/namespaces/")[2].partition("/")[2].partition("/")
    name, _, below = rest.partition("/")
    verb = {"POST": "create", "PATCH": "patch", "DELETE": "delete"}.get(method) or ("get" if name else "list")
    below = below.partition("/")[0]
    return group, f"{resource}/{below}" if below else resource, "watch" if query.get("watch") == "true" else verb


class _Handler(Handler):
    cluster: Cluster

    def _handle(self) -> None:
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        sent = self.sent()
        body = json.loads(sent) if sent else None
        request, watches = _request(self.command, url.path, query), query.get("watch") == "true"
        self.cluster.requests.append(f"{self.command} {url.path}" + "?watch" * watches)
        self.cluster.permissions.add(request)
        fault = self.cluster.faults.popleft() if self.cluster.faults else None
        if request in self.cluster.forbidden:
            self._status(403, "forbidden")
        elif fault == "reset":
            self.reset()
        elif isinstance(fault, int):
            self._status(fault, "a scripted fault")
        elif self.headers.get("Authorization") != f"Bearer {self.cluster.token}":
            self._status(401, "Unauthorized")
        elif "/proxy/" in url.path:
            self._proxy(url.path)
        elif url.path.endswith("/log"):
            self._log(url.path.split("/")[-2], query)
        elif watches:
            self._watch(query, fault)
        else:
            getattr(self, f"_{self.command.lower()}")(url.path, query, body)

    do_GET = do_POST = do_DELETE = do_PATCH = _handle

    def _get(self, path: str, query: dict[str, str], body: Any) -> None:
        if path.endswith("/pods"):
            name, _, value = query["labelSelector"].partition("=")
            pods = [pod for pod in list(self.cluster.pods.values()) if pod["metadata"]["labels"].get(name) == value]
            self.answer(200, {"items": pods})
        elif path.endswith("/events"):
            self.answer(200, {"items": self.cluster.events})
        elif "/pods/" in path and (pod := self.cluster.pods.get(path.rpartition("/")[2])):
            self.answer(200, pod)
        elif path in self.cluster.jobs:
            self.answer(200, self.cluster.jobs[path])
        elif path in self.cluster.objects:
            self.answer(200, self.cluster.objects[path])
        else:
            self._status(404, "not found")

    def _post(self, path: str, query: dict[str, str], body: Any) -> None:
        if path == "/apis/authentication.k8s.io/v1/tokenreviews":
            name, audiences = self.cluster.accounts.get(body["spec"]["token"], ("", []))
            shared = [audience for audience in body["spec"]["audiences"] if audience in audiences]
            user = {"user": {"username": name}, "audiences": shared} if shared else {}
            return self.answer(201, body | {"status": {"authenticated": bool(shared)} | user})
        if body["kind"].endswith("AccessReview") and path == f"/apis/{body['apiVersion']}/{body['kind'].lower()}s":
            return self._review(body)
        plural = re.fullmatch(r"/apis/(.+)/namespaces/(.+)/(pytorchjobs|trainjobs|rayjobs|jobs)", path)
        if (
            not plural
            or plural[3] in self.cluster.unserved
            or body["apiVersion"] != plural[1]
            or body["metadata"]["namespace"] != plural[2]
        ):
            return self._status(404, "no such resource")
        for field_name in self.cluster.lacks:
            if body["spec"].pop(field_name, None) is not None and query.get("fieldValidation") == "Strict":
                return self._status(400, f'strict decoding error: unknown field "spec.{field_name}"')
        if problems := [f"{error.json_path}: {error.message}" for error in validator(body["kind"]).iter_errors(body)]:
            return self._status(422, "; ".join(problems))
        key = f"{path}/{body['metadata']['name']}"
        if key in self.cluster.jobs:
            return self._status(409, "already exists")
        body["metadata"] |= {"uid": uuid.uuid4().hex, "creationTimestamp": _now()}
        self.cluster.jobs[key] = body
        self.cluster.created.append(body)
        self.cluster.touch(body)
        threading.Thread(target=self.cluster.play, args=(body,), daemon=True).start()
        return self.answer(201, body)

    def _review(self, body: Any) -> None:
        if ("user" in body["spec"]) != (body["kind"] == "SubjectAccessReview"):
            return self._status(422, "spec.user: a review of others names whom, and one of oneself does not")
        self.cluster.reviews.append(body)
        review = body["spec"]["resourceAttributes"]
        resource = f"{review['resource']}/{review['subresource']}" if review["subresource"] else review["resource"]
        allowed = (review["group"], resource, review["verb"]) in self.cluster.granted
        return self.answer(201, body | {"status": {"allowed": allowed}})

    def _proxy(self, path: str) -> None:
        place, _, rest = path.partition("/proxy/")
        address = self.cluster.reached.get(place.rpartition("/")[2].partition(":")[0])
        if address is None:
            return self._status(503, "error trying to reach the pod: connection refused")
        result = requests.get(f"{address}/{rest}", timeout=30)
        return self.answer(result.status_code, result.json())

    def _apply(self, path: str, query: dict[str, str], body: Any) -> None:
        """Server-side apply; a request that creates the object also needs the right to create."""
        present, managers = self.cluster.objects.get(path), self.cluster.applied.get(path, {})
        if present is None:
            self.cluster.permissions.add((*_request(self.command, path, query)[:2], "create"))
        for name in self.cluster.lacks:
            if f'"{name}":' in json.dumps(body):
                message = f"failed to create typed patch object: .spec.{name}: field not declared in schema"
                return self._status(500, message)
        if problems := [f"{error.json_path}: {error.message}" for error in validator(body["kind"]).iter_errors(body)]:
            return self._status(422, "; ".join(problems))
        result, managers, conflicts = apply(present, body, managers, query["fieldManager"], query["force"] == "true")
        if conflicts:
            return self._status(409, f"Apply failed with {len(conflicts)} conflict: {'; '.join(conflicts)}")
        if "dryRun" not in query and result != present:
            changed = present is None or present["spec"] != result["spec"]
            result["metadata"].setdefault("uid", uuid.uuid4().hex)
            self.cluster.objects[path], self.cluster.applied[path] = result, managers
            self.cluster.touch(result)
            if changed:
                self.cluster.applies(self.cluster, result)
        return self.answer(200 if present else 201, result)

    def _patch(self, path: str, query: dict[str, str], body: Any) -> None:
        if self.headers["Content-Type"] == "application/apply-patch+yaml":
            return self._apply(path, query, body)
        job = self.cluster.jobs.get(path)
        if job is None:
            return self._status(404, "not found")
        _merge(job, body)
        self.cluster.touch(job)
        return self.answer(200, job)

    def _delete(self, path: str, query: dict[str, str], body: Any) -> None:
        if self.cluster.objects.pop(path, None):
            return self.answer(200, {"kind": "Status", "status": "Success"})
        job = self.cluster.jobs.get(path)
        if job is None:
            return self._status(404, "not found")
        if body["preconditions"]["uid"] != job["metadata"]["uid"]:
            return self._status(409, "another uid")
        self.cluster.delete(path)
        return self.answer(200, {"kind": "Status", "status": "Success"})

    def _watch(self, query: dict[str, str], fault: object) -> None:
        """Send the pods as they are, or every change since a version, and then every change."""
        name, _, value = query["labelSelector"].partition("=")
        until, cluster = time.monotonic() + float(query["timeoutSeconds"]), self.cluster
        self._begin_stream()
        if fault == "close":
            return
        if fault == "gone":
            self._chunk(json.dumps({"type": "ERROR", "object": {"kind": "Status", "code": 410}}))
            return
        with cluster.changed:
            since = int(query.get("resourceVersion") or (cluster.changes[-1][0] if cluster.changes else 0))
            present = () if "resourceVersion" in query else cluster.pods.values()
            events = [copy.deepcopy({"type": "ADDED", "object": pod}) for pod in present]
        while time.monotonic() < until:
            for event in events:
                if event["object"]["metadata"]["labels"].get(name) == value:
                    self._chunk(json.dumps(event))
            events = cluster.changes_since(since, until)
            since = max([since, *(int(event["object"]["metadata"]["resourceVersion"]) for event in events)])
        self._end_stream()

    def _log(self, name: str, query: dict[str, str]) -> None:
        pod = self.cluster.pods.get(name)
        if pod is None:
            return self._status(404, "no such pod")
        waiting = any("waiting" in container["state"] for container in pod["status"].get("containerStatuses", ()))
        if (waiting and query.get("previous") != "true") or pod["status"]["phase"] == "Pending":
            return self._status(400, f'container "{query["container"]}" in pod "{name}" is waiting to start')
        lines = self.cluster.logs[pod["metadata"]["uid"]]
        since, shown = query.get("sinceTime", ""), 0
        if "tailLines" in query:
            shown = max(0, len(lines) - int(query["tailLines"]))
        self._begin_stream()
        while True:
            with self.cluster.changed:
                for line in lines[shown:]:
                    if line >= since:
                        text = line if query.get("timestamps") == "true" else line.partition(" ")[2]
                        self._chunk(text)
                shown = len(lines)
                ended = pod["status"]["phase"] in ("Succeeded", "Failed") or name not in self.cluster.pods
                if ended or query.get("follow") != "true":
                    return self._end_stream()
                self.cluster.changed.wait(1)

    def _begin_stream(self) -> None:
        self.close_connection = True
        self.send_response_only(200)
        self.send_header("Connection", "close")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def _chunk(self, line: str) -> None:
        data = line.encode() + b"\n"
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
        self.wfile.flush()

    def _end_stream(self) -> None:
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def _status(self, code: int, message: str) -> None:
        self.answer(code, {"kind": "Status", "code": code, "message": message})


@contextmanager
def kubernetes(scenario: Callable[[Cluster, Object], None]) -> Iterator[Cluster]:
    """A cluster in which every job goes as `scenario` says."""
    cluster = Cluster(scenario)
    try:
        with listening(_Handler, cluster=cluster) as cluster.port:
            yield cluster
    finally:
        for process in cluster.processes:
            process.kill()
            process.wait()
    for error in cluster.errors:
        raise error
