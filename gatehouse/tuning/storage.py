"""The database that holds studies instead of the artifact store: opened directly, or through Optuna's gRPC proxy."""

import functools
import os
import signal
import sys
import warnings
from collections.abc import Callable
from urllib.parse import urlsplit

import optuna
from optuna.exceptions import ExperimentalWarning

from gatehouse.errors import ConfigurationError, StoreError
from gatehouse.runtime.redaction import error_text, public_address, require_encoded

STORAGE = "GATEHOUSE_TUNING_STORAGE"
"""Environment variable with the URL of a database for studies, or of its proxy; empty for the artifact store."""
PROXY = "grpc://"
PORT = 13000
"""Default port of Optuna's proxy."""
_READY_SECONDS = 10.0


class StorageAddressError(ConfigurationError, StoreError):
    """The address of the studies' database can never be opened here."""


def named_url() -> str:
    """The URL in the environment variable; empty if there is none.

    Raises StorageAddressError if its password is not percent-encoded.
    """
    url = os.environ.get(STORAGE, "").strip()
    return require_encoded(url, STORAGE, StorageAddressError) if url else ""


def require_address(url: str) -> None:
    """Check the form of the address of a database or of its proxy; nothing is opened.

    Raises:
        StorageAddressError: saying why, without a password.
    """
    try:
        if url.startswith(PROXY):
            _host_and_port(url)
            return
        from sqlalchemy.engine import make_url

        require_encoded(url, STORAGE, StorageAddressError)
        parsed = make_url(url)
        if parsed.port is not None and not 0 < parsed.port < 2**16:
            raise StoreError(f"expected a port from 1 to 65535, found {parsed.port}")
        parsed.get_dialect().import_dbapi()
    except StorageAddressError:
        raise
    except Exception as error:  # Drivers raise errors of any class.
        raise StorageAddressError(_message(url, error)) from None


def database() -> optuna.storages.BaseStorage | None:
    """The database that holds studies, or its proxy; None if they are in the artifact store.

    Raises StoreError if it cannot be opened.
    """
    url = named_url()
    return _opened(url) if url else None


@functools.lru_cache(maxsize=1)
def _opened(url: str) -> optuna.storages.BaseStorage:
    """Open it once per process, because a command that follows an experiment reads it every second."""
    require_address(url)
    try:
        if not url.startswith(PROXY):
            # A connection that broke during a long training is replaced.
            database = optuna.storages.RDBStorage(url, engine_kwargs={"pool_pre_ping": True})
            return optuna.storages.get_storage(database)
        host, port = _host_and_port(url)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            proxy = optuna.storages.GrpcStorageProxy(host=host, port=port)
        proxy.wait_server_ready(timeout=_READY_SECONDS)
        return proxy
    except Exception as error:  # Drivers and gRPC raise errors of any class.
        raise StoreError(_message(url, error)) from None


def _message(url: str, error: Exception) -> str:
    """Why a database or proxy cannot be used, without the password of its URL."""
    words = str(error) if isinstance(error, StoreError) else error_text(error.__cause__ or error)
    kind = f"{PROXY}HOST:PORT of `gatehouse tuning serve-storage`" if url.startswith(PROXY) else "a database"
    return f"{STORAGE}: expected the URL of {kind}, found {public_address(url)}: {words or type(error).__name__}"


def _host_and_port(url: str) -> tuple[str, int]:
    """Host and port of the proxy at this URL, which has no user, password, path or query."""
    parts = urlsplit(url)
    host, port = parts.hostname, PORT if parts.port is None else parts.port
    if not host or not port or "@" in parts.netloc or parts.path.strip("/") or parts.query or parts.fragment:
        raise StoreError("expected a host and a port, and nothing else")
    return (f"[{host}]" if ":" in host else host), port


def serve(url: str, host: str, port: int, notify: Callable[[str], None]) -> None:
    """Serve the studies of a database through Optuna's gRPC proxy until SIGTERM.

    `notify` receives a line about the database and the address before the server starts. Raises ConfigurationError if
    the URL names no database or the server cannot listen on the address, and StoreError if it cannot be opened.
    """
    if not url or url.startswith(PROXY):
        raise ConfigurationError(f"{STORAGE}: expected the URL of a database, found {public_address(url) or 'none'}.")
    # Before the database is opened, which may take long: process 1 of a pod ignores SIGTERM.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    storage = _opened(url)
    address = f"[{host}]" if ":" in host else host
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    notify(
        f"Serving the studies of {public_address(url)} at {PROXY}{address}:{port}, without TLS and without passwords: "
        "whoever can reach this port can change every study."
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        try:
            optuna.storages.run_grpc_proxy_server(storage, host=address, port=port)
        except RuntimeError as error:
            raise ConfigurationError(f"{host}:{port}: the server cannot listen on this address: {error}") from error
