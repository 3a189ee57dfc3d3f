"""Serves the database of studies through Optuna's gRPC proxy, whose clients need no credentials of the database."""

import logging
import re
import signal
import socket
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import grpc
import optuna
from optuna.distributions import BaseDistribution
from optuna.exceptions import ExperimentalWarning, UpdateFinishedTrialError
from optuna.storages import GrpcStorageProxy
from optuna.storages._cached_storage import _CachedStorage
from optuna.storages._grpc.auto_generated.api_pb2_grpc import StorageServiceStub
from optuna.storages._grpc.client import GrpcClientCache
from optuna.trial import TrialState

from gatehouse.errors import ConfigurationError, StoreError
from gatehouse.runtime.redaction import shown
from gatehouse.tuning.access.address import PROXY, STORAGE, StorageAddressError
from gatehouse.tuning.access.database import by_url

logger = logging.getLogger(__name__)

PORT = 13000
"""Default port of Optuna's proxy."""
_FIRST, _LATER = 10.0, 120.0
"""Seconds to wait for an answer: for the first one of a proxy, and for later ones."""
_PAUSE = 0.25
_ANSWERS = {
    grpc.StatusCode.OK,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.ALREADY_EXISTS,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.INVALID_ARGUMENT,
}
"""Status codes that Optuna's server sends on purpose, and that its client understands."""
_ADDRESS = re.compile(rf"{PROXY}(?P<host>[\w.-]+|\[[\w:.%]+\])(?::(?P<port>[0-9]{{1,5}}))?/*", re.ASCII)
_OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 250),
    ("grpc.max_reconnect_backoff_ms", 2000),
    ("grpc.keepalive_time_ms", 20_000),  # Ends calls to a node that is gone.
]


class _Patience(grpc.UnaryUnaryClientInterceptor):  # type: ignore[misc]  # grpc has no types.
    """Repeats calls that the proxy does not answer, for a limited time, so that it can be restarted."""

    def __init__(self, address: str) -> None:
        self._address, self._seconds = address, _FIRST

    def intercept_unary_unary(self, continuation: Callable[[Any, Any], Any], details: Any, request: Any) -> Any:
        """Send a call, again and again, until it is answered.

        Raises:
            StoreError: if there is no answer in time, or one that Optuna's proxy does not give.
        """
        until, told = time.monotonic() + self._seconds, False
        while True:
            call = continuation(SimpleNamespace(timeout=max(_PAUSE, until - time.monotonic())), request)
            if call.code() in _ANSWERS:
                self._seconds = _LATER
                return call
            if call.code() != grpc.StatusCode.UNAVAILABLE or time.monotonic() > until:
                raise StoreError(self._refusal(call, details.method))
            if not told and self._seconds == _LATER:
                logger.warning("%s does not answer; waiting up to %g s for it", self._address, self._seconds)
                told = True
            time.sleep(_PAUSE)

    def _refusal(self, call: Any, method: str) -> str:
        said = " ".join(str(call.details()).split())
        found = f"{STORAGE}: expected Optuna's storage proxy at {self._address}, found {call.code().name}: {said}."
        if call.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
            return (
                f"{found} It was asked for {self._seconds:g} s. Check that gatehouse tuning serve-storage runs there, "
                "that the address is right, and that the network policy lets this pod reach it. The experiment "
                "continues when it is run again."
            )
        return f"{found} Check that this is the proxy, and read its log ({method.rpartition('/')[2]} failed)."


class ProxiedStorage(GrpcStorageProxy):
    """Client of a proxy that may be restarted at any time, for the single controller of an experiment.

    If an answer was lost, the call is sent again, so it may be applied twice. If this creates two trials,
    `ExperimentStudy.ask` uses both. If it ends a trial twice, this class checks that both have the same state and
    values. If it enqueues a configuration of `warm_start` twice, two trials try this configuration. Other calls have
    the same effect when repeated.
    """

    def _setup(self) -> None:
        """Connect as Optuna's client does, with repeated calls."""
        address = f"{self._host}:{self._port}"
        channel = grpc.insecure_channel(address, options=_OPTIONS)
        self._channel = grpc.intercept_channel(channel, _Patience(f"{PROXY}{address}"))
        self._stub = StorageServiceStub(self._channel)  # type: ignore[no-untyped-call]
        self._cache = GrpcClientCache(self._stub)

    def set_trial_state_values(self, trial_id: int, state: TrialState, values: Sequence[float] | None = None) -> bool:
        """Set the state; a trial that already ended with it and these values was ended by a call without an answer."""
        try:
            return super().set_trial_state_values(trial_id, state, values)
        except UpdateFinishedTrialError:
            ended = self.get_trial(trial_id)
            if (ended.state, ended.values) != (state, list(values) if values else None):
                raise
            return True


def proxied(url: str) -> ProxiedStorage:
    """The client of the proxy at this URL. It connects with the first call.

    Raises:
        StorageAddressError: if this is no URL of a proxy.
    """
    host, port = host_and_port(url)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        return ProxiedStorage(host=host, port=port)


def host_and_port(url: str) -> tuple[str, int]:
    """Where the proxy at this URL is; an IPv6 address is in brackets.

    Raises:
        StorageAddressError: if this is no URL of a proxy.
    """
    found = _ADDRESS.fullmatch(url)
    if not found or not 0 < (port := int(found["port"] or PORT)) < 2**16:
        raise StorageAddressError(
            f"{STORAGE}: expected {PROXY}HOST or {PROXY}HOST:PORT, found {shown(url) or PROXY}. PORT is a number up to "
            "65535. The address of the proxy has no user, password, path or query: remove them."
        )
    return found["host"], port


class ServedStorage(_CachedStorage):
    """Optuna's cached database, which after a restart also accepts parameters of trials that it has not read yet."""

    def set_trial_param(
        self, trial_id: int, param_name: str, param_value_internal: float, distribution: BaseDistribution
    ) -> None:
        """Set a parameter of any trial."""
        if trial_id in self._trial_id_to_study_id_and_number:
            super().set_trial_param(trial_id, param_name, param_value_internal, distribution)
        else:
            self._backend.set_trial_param(trial_id, param_name, param_value_internal, distribution)


def serve(url: str, host: str, port: int, told: Callable[[str], None]) -> None:
    """Serve the studies of a database until SIGTERM.

    Args:
        url: URL of the database.
        host: Address to listen on.
        port: Port to listen on.
        told: Receives one line that says what is served and where, before the server starts.

    Raises:
        ConfigurationError: if the URL names no database, or the server cannot listen on the address.
        StoreError: if the database cannot be opened.
    """
    if not url or url.startswith(PROXY):
        found = f"found {shown(url)}, a proxy itself" if url else "found none: studies are in the artifact store"
        raise ConfigurationError(
            f"{STORAGE}: expected the URL of a database, such as postgresql+psycopg://…, {found}. Optuna's proxy "
            "serves only databases."
        )
    try:
        socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except OSError as error:
        raise ConfigurationError(
            f"{host}:{port}: expected an address on which a server can listen: {error}. See --host and --port."
        ) from error
    # First, because a database that does not answer holds the next line up, and process 1 of a pod ignores SIGTERM.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    storage = ServedStorage(by_url(url))
    at = f"[{host}]" if ":" in host else host
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    told(
        f"Serving the studies of {shown(url)} at {PROXY}{at}:{port}, without TLS and without passwords: whoever "
        "can reach this port can change every study."
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        optuna.storages.run_grpc_proxy_server(storage, host=at, port=port)
