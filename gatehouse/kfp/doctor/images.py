"""Whether a registry has an image: asks for its manifest by digest, with the credentials of Podman or Docker."""

import base64
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from urllib.request import parse_http_list, parse_keqv_list

import requests
from requests import PreparedRequest, Response

from gatehouse.operations.diagnosing_stage import Finding, failed, passed, unchecked
from gatehouse.runtime.images import by_digest
from gatehouse.runtime.redaction import redacted

_TIMEOUT = 10.0
_MANIFESTS = (
    "application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json, "
    "application/vnd.docker.distribution.manifest.v2+json, application/vnd.docker.distribution.manifest.list.v2+json"
)
_HUB, _HUB_API, _HUB_LOGIN = "docker.io", "registry-1.docker.io", "https://index.docker.io/v1/"
_OK, _UNAUTHORIZED, _NOT_FOUND = 200, 401, 404


def image_finding(name: str, reference: str) -> Finding:
    """Check that an image is named by digest, and that its registry has a manifest with this digest."""
    check = f"image {name}"
    if not by_digest(reference):
        advice = "`make images`, push, and name it in the profile under `images`, by its digest."
        return failed(check, f"expected repository@sha256:…, found {reference or 'none'}", advice)
    repository, _, digest = reference.partition("@")
    host, _, path = repository.partition("/")
    if not path or not (host == "localhost" or "." in host or ":" in host):  # As Docker tells a host from a folder.
        host, path = _HUB, repository if path else f"library/{repository}"
    path = path.partition(":")[0]  # Without a tag.
    advice = f"Log in to {host} on this machine (`podman login`, `docker login`), or ask from one that reaches it."
    try:
        status = _manifest_status(host, path, digest)
    except (requests.RequestException, OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
        why = " ".join(redacted(f"{type(error).__name__}: {error}").split())[:300]
        return unchecked(check, f"{host} cannot be asked for {reference}: {why}", advice)
    if status == _OK:
        return passed(check, f"{host} has {reference}")
    if status == _NOT_FOUND:
        push = "`make images` with REGISTRY pushes it; copy its digest from images/digests.lock into the profile."
        return failed(check, f"{host} has no {reference}", push)
    return unchecked(check, f"{host} answers {status} when asked for {reference}", advice)


def _manifest_status(host: str, path: str, digest: str) -> int:
    """The HTTP status with which a registry answers for a manifest.

    A registry that wants credentials answers 401 and says how: by Basic, or by a token of the server in `realm`
    (https://distribution.github.io/distribution/spec/auth/token). Only a registry of this machine may lack TLS.
    """
    local = host.partition(":")[0] in ("localhost", "127.0.0.1")
    url = f"http{'' if local else 's'}://{_HUB_API if host == _HUB else host}/v2/{path}/manifests/{digest}"

    def ask(auth: tuple[str, str] | Callable[[PreparedRequest], PreparedRequest] | None) -> Response:
        return requests.head(url, headers={"Accept": _MANIFESTS}, auth=auth, timeout=_TIMEOUT, allow_redirects=True)

    answer = ask(None)
    if answer.status_code != _UNAUTHORIZED:
        return int(answer.status_code)
    login = _login(host, path)
    kind, _, challenge = answer.headers.get("WWW-Authenticate", "").partition(" ")
    if kind.lower() != "bearer":
        return int(ask(login).status_code) if login else _UNAUTHORIZED
    query = parse_keqv_list(parse_http_list(challenge))
    realm = query.pop("realm")
    if not (local or realm.startswith("https://")):
        raise ValueError(f"its server of tokens lacks TLS: {realm}")
    granted = requests.get(realm, params=query, auth=login, timeout=_TIMEOUT)
    granted.raise_for_status()
    body = granted.json()
    token = body.get("token") or body["access_token"]

    def with_token(request: PreparedRequest) -> PreparedRequest:
        request.headers["Authorization"] = f"Bearer {token}"
        return request

    return int(ask(with_token).status_code)


def _login(host: str, path: str) -> tuple[str, str] | None:
    """User and password for a repository, from the files of Podman and Docker and their credential helpers."""
    named = os.environ.get
    runtime = named("XDG_RUNTIME_DIR")
    files = [
        Path(named("REGISTRY_AUTH_FILE") or os.devnull),
        Path(f"{runtime}/containers" if runtime else f"/run/containers/{os.getuid()}", "auth.json"),
        Path(named("XDG_CONFIG_HOME") or Path.home() / ".config", "containers", "auth.json"),
        Path(named("DOCKER_CONFIG") or Path.home() / ".docker", "config.json"),
    ]
    server, place = _HUB_LOGIN if host == _HUB else host, PurePosixPath(host, path)
    for file in filter(Path.is_file, files):
        config = json.loads(file.read_bytes())
        for key in (*map(str, (place, *place.parents)), server):  # Podman also keeps a login for a part of a registry.
            if encoded := config.get("auths", {}).get(key, {}).get("auth"):
                user, _, password = base64.b64decode(encoded).decode().partition(":")
                return user, password
        if helper := config.get("credHelpers", {}).get(server) or config.get("credsStore"):
            command = [f"docker-credential-{helper}", "get"]
            ended = subprocess.run(command, input=server, capture_output=True, text=True, timeout=_TIMEOUT, check=False)
            if ended.returncode == 0:  # It fails where it has no login.
                body = json.loads(ended.stdout)
                return body["Username"], body["Secret"]
    return None
