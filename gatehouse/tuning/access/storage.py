"""The database that holds studies instead of the artifact store: opened directly, or through Optuna's gRPC proxy."""

import functools
import os
import re
import signal
import sys
import warnings
from collections.abc import Callable

import optuna
from optuna.exceptions import ExperimentalWarning

from gatehouse.errors import ConfigurationError, StoreError
from gatehouse.runtime.redaction import holds_password, require_encoded, said, shown

STORAGE = "GATEHOUSE_TUNING_STORAGE"
"""Environment variable with the URL of a database for studies, or of its proxy; empty for the artifact store."""
PROXY = "grpc://"
PORT = 13000
"""Default port of Optuna's proxy."""
_READY_SECONDS = 10.0
_ADDRESS = re.compile(rf"{PROXY}(?P<host>[\w.-]+|\[[\w:.%]+\])(?::(?P<port>[0-9]{{1,5}}))?/*", re.ASCII)


class StorageAddressError(ConfigurationError, StoreError):
    """The address of the studies' database can never be opened here."""


def named_url() -> str:
    """The URL in the environment variable; empty if there is none.

    Raises:
        StorageAddressError: if its password is not percent-encoded.
    """
    url = os.environ.get(STORAGE, "").strip()
    return require_encoded(url, STORAGE, StorageAddressError) if url else ""


def require_address(url: str) -> None:
    """Check the form of the address of a database or of its proxy; nothing is opened.

    Raises:
        StorageAddressError: saying why, without a password.
    """
    if url.startswith(PROXY):
        _host_and_port(url)
        return
    from sqlalchemy.engine import make_url

    require_encoded(url, STORAGE, StorageAddressError)
    try:
        parsed = make_url(url)
        if parsed.port is not None and not 0 < parsed.port < 2**16:
            raise StoreError(f"port {parsed.port}: expected a number from 1 to 65535")
        parsed.get_dialect().import_dbapi()
    except Exception as error:  # Drivers raise errors of any class.
        raise StorageAddressError(_message(url, error)) from None


def database() -> optuna.storages.BaseStorage | None:
    """The database that holds studies, or its proxy; None if they are in the artifact store.

    Raises:
        StoreError: if it cannot be opened.
    """
    url = named_url()
    return _opened(url) if url else None


@functools.lru_cache(maxsize=1)
def _opened(url: str) -> optuna.storages.BaseStorage:
    """Open it once per process, because a command that follows an experiment reads it every second."""
    require_address(url)
    try:
        if not url.startswith(PROXY):
            return optuna.storages.get_storage(_database_at(url))
        host, port = _host_and_port(url)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            proxy = optuna.storages.GrpcStorageProxy(host=host, port=port)
        proxy.wait_server_ready(timeout=_READY_SECONDS)
        return proxy
    except Exception as error:  # Drivers and gRPC raise errors of any class.
        raise StoreError(_message(url, error)) from None


def _database_at(url: str) -> optuna.storages.RDBStorage:
    # A connection that broke during a long training is replaced.
    return optuna.storages.RDBStorage(url, engine_kwargs={"pool_pre_ping": True})


def _message(url: str, error: Exception) -> str:
    """Why a database or proxy cannot be used, without the password of its URL."""
    words = str(error) if isinstance(error, StoreError) else said(error.__cause__ or error, holds_password(url))
    kind = "`gatehouse tuning serve-storage`" if url.startswith(PROXY) else "a database, such as postgresql+psycopg://…"
    return f"{STORAGE}: expected the URL of {kind}, found {shown(url)}: {words or type(error).__name__}"


def _host_and_port(url: str) -> tuple[str, int]:
    """Where the proxy at this URL is; an IPv6 address is in brackets."""
    parts = _ADDRESS.fullmatch(url)
    if not parts or not 0 < (port := int(parts["port"] or PORT)) < 2**16:
        raise StorageAddressError(
            f"{STORAGE}: expected {PROXY}HOST or {PROXY}HOST:PORT, found {shown(url) or PROXY}. PORT is a number up to "
            "65535, and the address has no user, password, path or query."
        )
    return parts["host"], port


def serve(url: str, host: str, port: int, notify: Callable[[str], None]) -> None:
    """Serve the studies of a database through Optuna's gRPC proxy until SIGTERM.

    Args:
        url: URL of the database.
        host: Address to listen on.
        port: Port to listen on.
        notify: Receives one line that says what is served and where, before the server starts.

    Raises:
        ConfigurationError: if the URL names no database, or the server cannot listen on the address.
        StoreError: if the database cannot be opened.
    """
    if not url or url.startswith(PROXY):
        found = f"found {shown(url)}, a proxy itself" if url else "found none: studies are in the artifact store"
        raise ConfigurationError(f"{STORAGE}: expected the URL of a database, such as postgresql+psycopg://…, {found}.")
    # Before the database is opened, which may take long: process 1 of a pod ignores SIGTERM.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    require_address(url)
    try:
        storage = optuna.storages.get_storage(_database_at(url))
    except Exception as error:
        raise StoreError(_message(url, error)) from None
    address = f"[{host}]" if ":" in host else host
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    notify(
        f"Serving the studies of {shown(url)} at {PROXY}{address}:{port}, without TLS and without passwords: whoever "
        "can reach this port can change every study."
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        try:
            optuna.storages.run_grpc_proxy_server(storage, host=address, port=port)
        except RuntimeError as error:
            raise ConfigurationError(
                f"{host}:{port}: expected an address on which a server can listen: {error}"
            ) from error
